// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// TestEmbeddedIsCopied changes a spec that Spec returned: the next caller gets the original.
func TestEmbeddedIsCopied(t *testing.T) {
	first, err := XDP.Spec()
	if err != nil {
		t.Fatal(err)
	}
	program := first.Programs[XDPProgJeoulXdp]
	program.AttachType = ebpf.AttachNone
	program.Instructions[0] = asm.Return()
	first.Maps[GenerationSection].ValueSize++
	if err := first.Variables[XDPVarLoaded].Set(XDPSettings{Modes: 1}); err != nil {
		t.Fatal(err)
	}
	second, err := XDP.Spec()
	if err != nil {
		t.Fatal(err)
	}
	var constants XDPSettings
	if err := second.Variables[XDPVarLoaded].Get(&constants); err != nil {
		t.Fatal(err)
	}
	again := second.Programs[XDPProgJeoulXdp]
	if again.AttachType == ebpf.AttachNone || again.Instructions[0].OpCode == asm.Return().OpCode ||
		second.Maps[GenerationSection].ValueSize == first.Maps[GenerationSection].ValueSize || constants.Modes != 0 {
		t.Error("what one caller has changed reached the next")
	}
}

func BenchmarkEmbedded(b *testing.B) {
	for name, read := range map[string]func() (*ebpf.CollectionSpec, error){"read": XDP.read, "copied": XDP.Spec} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
