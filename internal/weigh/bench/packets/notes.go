// SPDX-License-Identifier: Apache-2.0

package packets

// Notes are for readers of the figures, whether timed or counted.
var Notes = []string{
	"BPF_PROG_TEST_RUN repeats a harness that restores the packet, takes the next flow and tail-calls the program under test; its cost is in `empty`, and so not in the net figures",
	"a packet that a tunnel made longer has to be made shorter again: that is in the tunnels' net figures, and in those of `adjust`, which makes a packet 20 bytes longer and nothing else",
	"in TC the kernel takes a socket buffer that was in a tunnel once for one that still is, and refuses to put it in another: from the second packet on, tunnels and `adjust` make room in a second try, which real packets do not need",
	"replies of nat and fullnat find their way by routes that are mirrored from the kernel's, in a network namespace with one " +
		"route a family and a known neighbour",
	"no device, no driver, no memory traffic of packets: this is the program's own cost, on one CPU with warm code",
	"each scheduler that remembers flows has a balancer of its own, with room for just the known flows of a case, that all are proven; new flows are measured beside them, " +
		"and fill at most half of the room for unproven ones",
}

// TimingNotes are the notes on timed figures.
var TimingNotes = []string{
	"a figure is the fastest of some rounds, less the fastest of the empty program: a busy neighbour on the processor can only slow a packet down; samples has all rounds",
	"each round has balancers of its own: where tables happen to lie in memory is worth some nanoseconds",
	"the empty program runs right before each figure, under the same packets, and its figure is what `net` is net of",
}

// countingNotes are the notes on counted figures.
var countingNotes = []string{
	"a figure is a count of instructions, of one emulated processor whose clock advances by a nanosecond with each, whatever it is: caches, branch prediction and memory are not in it, " +
		"so that with more flows only the search in a table takes more",
	"the instructions of the kernel's helpers are in the figures, and of a timer's interrupt what falls to a packet; the kernel tells whole numbers",
	"of some rounds the least counts, less the least of the empty program, which runs right before each figure under the same packets; samples has all rounds",
}
