// SPDX-License-Identifier: Apache-2.0

package attach

// Leftover keeps a program on an interface that another process has put there.
type Leftover struct {
	Hold   Hold
	Method Method
	// Index is the interface's.
	Index int
}

// HoldsOf returns the links and filters that keep the programs.
func HoldsOf(leftovers []Leftover) (holds []Hold) {
	for _, l := range leftovers {
		holds = append(holds, l.Hold)
	}
	return holds
}
