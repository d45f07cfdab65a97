// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cilium/ebpf/btf"
)

// sharedLayout identifies what the shared maps are and what their elements look like, by the
// program's own type information. Another program can go on with them if it has the same.
var sharedLayout = sync.OnceValues(func() (string, error) {
	spec, err := xdpProgram.load()
	if err != nil {
		return "", fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	hash, format := sha256.New(), btf.GoFormatter{}
	declare := func(name string, of btf.Type) error {
		if of == nil {
			return nil
		}
		text, err := format.TypeDeclaration(name, of)
		if err != nil {
			return fmt.Errorf("describing %s of the embedded eBPF program: %v", name, err)
		}
		fmt.Fprintln(hash, text)
		return nil
	}
	names := (&shared{}).maps()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		m := spec.Maps[name]
		fmt.Fprintln(hash, name, m.Type, m.KeySize, m.ValueSize, m.Flags)
		if err := declare("value", m.Value); err != nil {
			return "", err
		}
	}
	// What the elements hold are numbers of these.
	for _, name := range []string{"outcome", "flow_state", "flow_table", "return_table"} {
		var of *btf.Enum
		if err := spec.Types.TypeByName(name, &of); err != nil {
			return "", fmt.Errorf("looking for the type %s of the embedded eBPF program: %v", name, err)
		}
		for _, v := range of.Values {
			fmt.Fprintln(hash, v.Name, v.Value)
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:16]), nil
})
