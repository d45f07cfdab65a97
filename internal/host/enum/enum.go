// SPDX-License-Identifier: Apache-2.0

// Package enum reads the names of a C enum from the type information (BTF) of an eBPF object, so that the names are
// defined in one place.
package enum

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Names returns the names of the values 0 to count-1 of an enum, without their prefix and in lower case. It fails if
// the object has no such enum, or if a value has no name.
func Names(spec *ebpf.CollectionSpec, enum, prefix string, count int) ([]string, error) {
	var typ *btf.Enum
	if err := spec.Types.TypeByName(enum, &typ); err != nil {
		return nil, fmt.Errorf("reading the names of enum %s from the eBPF object: %v", enum, err)
	}
	names := make([]string, count)
	for _, value := range typ.Values {
		if value.Value < uint64(count) {
			names[value.Value] = strings.ToLower(strings.TrimPrefix(value.Name, prefix))
		}
	}
	for i, name := range names {
		if name == "" {
			return nil, fmt.Errorf("reading the names of enum %s from the eBPF object: value %d has none", enum, i)
		}
	}
	return names, nil
}
