// SPDX-License-Identifier: Apache-2.0

// Package rules derives findings from the evidence of a host, with the consequences for users and the remedies. Rules
// are pure functions, a file for each source; [Kinds] are the kinds of findings.
package rules

import "github.com/jeoul/jeoul/internal/tools/doctor/evidence"

// allRules conclude from the evidence.
var allRules = []func(*evidence.Evidence) []Finding{
	checkPorts, checkConntrack, checkNeighbours, checkWire, checkMissingVIP, checkReversePath, checkFilter,
	checkPaths, checkListeners, checkRoutes, checkBalancer, checkFlows, checkMemory, checkSoftnet, checkLinks,
	checkQdiscs, checkXDP, checkChecksums, checkCores, checkTimeWait, checkRetransmits, checkOtherDrops, checkKernel,
}

// Findings concludes from the evidence, the worst first.
func Findings(e *evidence.Evidence) []Finding {
	findings := []Finding{}
	for _, rule := range allRules {
		findings = append(findings, rule(e)...)
	}
	sortFindings(findings)
	return findings
}
