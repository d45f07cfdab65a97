// SPDX-License-Identifier: Apache-2.0

package attach

// Leftover is the attachment of a program by an earlier process.
type Leftover struct {
	Hold   Hold
	Method Method
	// Index is the index of the interface.
	Index int
}

// HoldsOf returns the links and filters that keep the programs.
func HoldsOf(leftovers []Leftover) (holds []Hold) {
	for _, l := range leftovers {
		holds = append(holds, l.Hold)
	}
	return holds
}
