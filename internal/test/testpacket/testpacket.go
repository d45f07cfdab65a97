// SPDX-License-Identifier: Apache-2.0

// Package testpacket builds and prints the frames that tests pass to programs.
package testpacket

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/gopacket/gopacket"
)

// Serialize returns layers as bytes, outermost first, with lengths and checksums filled in. A transport layer must have
// its network layer set: see Build.
func Serialize(tb testing.TB, parts ...gopacket.SerializableLayer) []byte {
	tb.Helper()
	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buffer, options, parts...); err != nil {
		tb.Fatal(err)
	}
	return buffer.Bytes()
}

// Build is Serialize for a transport layer without its network layer, which it sets to the preceding layer.
func Build(tb testing.TB, parts ...gopacket.SerializableLayer) []byte {
	tb.Helper()
	var network gopacket.NetworkLayer
	for _, part := range parts {
		transport, ok := part.(interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		})
		if ok && network != nil {
			if err := transport.SetNetworkLayerForChecksum(network); err != nil {
				tb.Fatal(err)
			}
		}
		if layer, ok := part.(gopacket.NetworkLayer); ok {
			network = layer
		}
	}
	return Serialize(tb, parts...)
}

// Dump returns the first 300 bytes of a frame in hexadecimal.
func Dump(frame []byte) string {
	return fmt.Sprintf("%d bytes: %x", len(frame), frame[:min(len(frame), 300)])
}

// FitsSocketBuffer reports whether BPF_PROG_TEST_RUN accepts a frame as a socket buffer. The frame must fit in a page,
// linearly, and contain the IP header that its type announces.
func FitsSocketBuffer(frame []byte) bool {
	least := 15
	if len(frame) >= 14 {
		switch binary.BigEndian.Uint16(frame[12:]) {
		case 0x0800:
			least = 14 + 20
		case 0x86dd:
			least = 14 + 40
		}
	}
	return len(frame) >= least && len(frame) < 3000
}
