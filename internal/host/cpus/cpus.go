// SPDX-License-Identifier: Apache-2.0

// Package cpus writes sets of CPUs as the kernel reads them.
package cpus

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/cpuset"
)

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
