// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"os"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// TestMain keeps the plain programs for as long as the tests run, which load them by the hundred.
func TestMain(m *testing.M) {
	var kept []*ebpf.CollectionSpec
	for _, e := range []*embedded{&embeddedXDP, &embeddedTC} {
		spec, err := e.original()
		if err != nil {
			panic(err) // what was generated is damaged
		}
		kept = append(kept, spec)
	}
	code := m.Run()
	runtime.KeepAlive(kept)
	os.Exit(code)
}

// TestEmbeddedIsCopied changes what spec returned: the next caller gets the original.
func TestEmbeddedIsCopied(t *testing.T) {
	first, err := embeddedXDP.spec()
	if err != nil {
		t.Fatal(err)
	}
	program := first.Programs[xdpProgram.name]
	program.AttachType = ebpf.AttachNone
	program.Instructions[0] = asm.Return()
	first.Maps[generationSection].ValueSize++
	if err := first.Variables[xdpVarLoaded].Set(xdpSettings{Modes: 1}); err != nil {
		t.Fatal(err)
	}
	second, err := embeddedXDP.spec()
	if err != nil {
		t.Fatal(err)
	}
	var constants xdpSettings
	if err := second.Variables[xdpVarLoaded].Get(&constants); err != nil {
		t.Fatal(err)
	}
	again := second.Programs[xdpProgram.name]
	if again.AttachType == ebpf.AttachNone || again.Instructions[0].OpCode == asm.Return().OpCode ||
		second.Maps[generationSection].ValueSize == first.Maps[generationSection].ValueSize || constants.Modes != 0 {
		t.Error("what one caller has changed reached the next")
	}
}

func BenchmarkEmbedded(b *testing.B) {
	for name, read := range map[string]func() (*ebpf.CollectionSpec, error){"read": embeddedXDP.read, "copied": embeddedXDP.spec} {
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
