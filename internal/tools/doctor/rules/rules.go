// SPDX-License-Identifier: Apache-2.0

// Package rules concludes from the evidence of a look at a host which faults it has, with the consequences for users
// and the remedies. Rules are pure, a file for each source; [Kinds] are the faults that they know.
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
