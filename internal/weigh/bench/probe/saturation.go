// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Usage is the CPU that one part of a trial used while the load was on.
type Usage struct {
	// Part is the part of the laboratory; the switch is no part that a result can name, but shares the machine with the
	// others.
	Part results.Part
	// Cores is the CPU use of all its hosts together: 1 is one core busy throughout.
	Cores float64
	// Busiest is the use of its busiest thread, in cores, and BusiestName that thread's name. A thread cannot use more
	// than one core, so at one it is the limit however many others idle.
	Busiest     float64
	BusiestName string
	// Allowed is the number of cores that the part can use at most (a proxy's
	// threads); 0 if nothing but the machine bounds it.
	Allowed float64
}

// PartSwitch is the laboratory's own switch.
const PartSwitch results.Part = "switch"

// PartHost is the balancer's host where load generators run on it, too: it cannot be said which
// of them a limit is.
const PartHost results.Part = "the balancer's host"

// The thresholds of Saturated.
const (
	// fullThread is the share of a core from which a thread counts as busy all
	// the time: the rest goes to whatever else its core had to do.
	fullThread = 0.95
	// idleMachine is the share of all cores that must have idled for the machine
	// not to be the limit.
	idleMachine = 0.15
	// clearlyLargest is how much more than every other part one must have used
	// to be called the limit of a machine that all of them share.
	clearlyLargest = 1.25
)

// Saturated says which part limited a trial, and gives the figures that this was derived from. On a machine of its own
// a part is the limit when it has no more CPU to use; here all parts share one machine, so the rule is, in this order:
//
//  1. a part whose busiest thread used at least 95 % of a core, or which used at
//     least 95 % of the cores it may use: that part (the one nearest to its
//     limit, if several did);
//  2. 15 % or more of the machine idled: none, for each process that had work could run;
//  3. the machine was full and one part used at least 1.25 times as much of it
//     as any other: that part;
//  4. else: unknown.
//
// The switch may win by the rule, but it is a part of the laboratory and not weighed: then the result is unknown, and
// the note says so. So it is with PartHost.
func Saturated(parts []Usage, idle, cores float64) (results.Part, string) {
	figures := describe(parts, idle, cores)
	if full, reason := fullest(parts); full != nil {
		return known(full.Part), fmt.Sprintf("saturated: %s, for %s; %s", full.Part, reason, figures)
	}
	if cores <= 0 || len(parts) == 0 {
		return results.SaturatedUnknown, "saturated: unknown, for there are no CPU figures"
	}
	if idle >= idleMachine*cores {
		return results.SaturatedNone, fmt.Sprintf("saturated: none, for %.0f %% of the machine idled; %s",
			idle/cores*100, figures)
	}
	sorted := slices.SortedFunc(slices.Values(parts), func(a, b Usage) int { return cmp.Compare(b.Cores, a.Cores) })
	first := sorted[0]
	if len(sorted) == 1 || first.Cores >= clearlyLargest*sorted[1].Cores {
		return known(first.Part),
			fmt.Sprintf("saturated: %s, for the machine was full and it had the largest share; %s", first.Part, figures)
	}
	return results.SaturatedUnknown, fmt.Sprintf(
		"saturated: unknown, for the parts share a full machine and none had clearly the largest share; %s", figures)
}

// SaturatedMachines is Saturated where the parts are on several machines: the limit
// is on the one that is fullest, by the same rule, and none where every machine has
// time to spare. A balancer may use so many cores of its machine; 0 is all.
func SaturatedMachines(machines []MachineParts, allowed float64) (results.Part, string) {
	part, why, least := results.SaturatedNone, "", 2.0
	var idle, cores float64
	var all []Usage
	for _, m := range machines {
		for i := range m.Parts {
			if m.Parts[i].Part == results.SaturatedBalancer {
				m.Parts[i].Allowed = allowed
			}
		}
		idle, cores, all = idle+m.Idle, cores+m.Cores, append(all, m.Parts...)
		if m.Cores <= 0 {
			continue
		}
		if on, reason := Saturated(m.Parts, m.Idle, m.Cores); on != results.SaturatedNone && m.Idle/m.Cores < least {
			part, why, least = on, reason, m.Idle/m.Cores
		}
	}
	if part == results.SaturatedNone {
		why = fmt.Sprintf("saturated: none, for every machine had time to spare; %s", describe(all, idle, cores))
	}
	return part, why
}

// fullest returns the part nearest to (or furthest over) its own limit among
// those that reached it, and the reason in words.
func fullest(parts []Usage) (full *Usage, reason string) {
	most := 0.0
	for i, part := range parts {
		if part.Busiest >= fullThread && part.Busiest > most {
			most, full = part.Busiest, &parts[i]
			reason = fmt.Sprintf("its thread %s used %.2f of a core", part.BusiestName, part.Busiest)
		}
		if part.Allowed > 0 && part.Cores >= fullThread*part.Allowed && part.Cores/part.Allowed > most {
			most, full = part.Cores/part.Allowed, &parts[i]
			reason = fmt.Sprintf("it used %.2f of the %g cores it may use", part.Cores, part.Allowed)
		}
	}
	return full, reason
}

// known maps a part to one that a result may name.
func known(part results.Part) results.Part {
	if part == PartSwitch || part == PartHost {
		return results.SaturatedUnknown
	}
	return part
}

// describe lists the figures, the largest user first.
func describe(parts []Usage, idle, cores float64) string {
	sorted := slices.SortedStableFunc(slices.Values(parts), func(a, b Usage) int {
		return cmp.Compare(b.Cores, a.Cores)
	})
	words := make([]string, 0, len(sorted)+1)
	for _, part := range sorted {
		words = append(words, fmt.Sprintf("%s %.2f", part.Part, part.Cores))
	}
	words = append(words, fmt.Sprintf("idle %.2f", idle))
	return fmt.Sprintf("cores used of %g: %s", cores, strings.Join(words, ", "))
}
