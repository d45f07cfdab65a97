// SPDX-License-Identifier: Apache-2.0

// Package rules derives findings from the evidence of a host, with the consequences for users and the remedies. Rules
// are pure functions, in a file for each source. [Kinds] returns the kinds of findings.
package rules

import "github.com/jeoul/jeoul/internal/tools/doctor/evidence"

// allRules derive findings from the evidence.
var allRules = []func(*evidence.Evidence) []Finding{
	checkPorts, checkConntrack, checkNeighbours, checkWire, checkMissingVIP, checkReversePath, checkFilter,
	checkPaths, checkListeners, checkRoutes, checkBalancer, checkFlows, checkMemory, checkSoftnet, checkLinks,
	checkQdiscs, checkXDP, checkChecksums, checkCores, checkTimeWait, checkRetransmits, checkOtherDrops, checkKernel,
}

// Findings derives the findings from the evidence, worst first.
func Findings(e *evidence.Evidence) []Finding {
	findings := []Finding{}
	for _, rule := range allRules {
		findings = append(findings, rule(e)...)
	}
	sortFindings(findings)
	return findings
}
