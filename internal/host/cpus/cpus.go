// SPDX-License-Identifier: Apache-2.0

// Package cpus knows which CPUs the process may use, and writes sets of CPUs as the kernel reads them.
package cpus

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/utils/cpuset"
)

// atStart are the CPUs before any thread of the process was pinned.
var atStart = allowed()

// Allowed returns the numbers of the CPUs that the process was allowed to use when it started, in ascending order. They
// are as many as runtime.NumCPU, but need not begin with 0: a container, taskset(1) or a CPU that is offline leaves
// gaps.
func Allowed() []int { return slices.Clone(atStart) }

// allowed returns the CPUs that the calling thread may use.
func allowed() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil { // the machine has more CPUs than the set has room for
		for cpu := range runtime.NumCPU() {
			set.Set(cpu)
		}
	}
	var all []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	return all
}

// Mask returns a set in the format of files such as xps_cpus: hexadecimal words of 32 bits, the highest first,
// separated by commas. The empty set is "0".
func Mask(set cpuset.CPUSet) string {
	list := set.List()
	if len(list) == 0 {
		return "0"
	}
	words := make([]uint32, slices.Max(list)/32+1)
	for _, cpu := range list {
		words[cpu/32] |= 1 << (cpu % 32)
	}
	texts := []string{fmt.Sprintf("%x", words[len(words)-1])}
	for _, word := range slices.Backward(words[:len(words)-1]) {
		texts = append(texts, fmt.Sprintf("%08x", word))
	}
	return strings.Join(texts, ",")
}

// SameMask reports whether two masks are of the same set, ignoring leading zeros.
func SameMask(a, b string) bool {
	trimmed := func(mask string) string {
		return strings.TrimLeft(strings.ReplaceAll(strings.TrimSpace(mask), ",", ""), "0")
	}
	return strings.EqualFold(trimmed(a), trimmed(b))
}
