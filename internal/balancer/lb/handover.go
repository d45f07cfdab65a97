// SPDX-License-Identifier: Apache-2.0

package lb

// FlowWalk goes over flows, a part at a time.
type FlowWalk interface {
	// Next calls visit for flows of the next so many places at least, and reports whether those were the last ones.
	Next(places int, visit func(*Flow)) (whole bool, err error)
}

// MergeResult counts the flows of another balancer by the result of merging them.
type MergeResult struct {
	// New were new here, and Known were known already.
	New, Known int
	// Refused are counted by the reason.
	Refused map[string]int
	// Missed counts the refused flows that would be taken after a change that is yet to come here, so that they are to
	// be sent again then.
	Missed int
}
