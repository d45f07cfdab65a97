// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
)

// Unsent is the result of One for a packet that the program did not send on.
const Unsent = ^uint32(0)

// One sends a single frame through a program, without the harness around it, and returns its next hop: the last four
// bytes of the MAC address, as in Seen.To.
func One(program *ebpf.Program, f Frame) (to uint32, err error) {
	out := make([]byte, len(f.Bytes)+256)
	options := ebpf.RunOptions{Data: f.Bytes, DataOut: out}
	if _, err := program.Run(&options); err != nil {
		return Unsent, fmt.Errorf("BPF_PROG_TEST_RUN: %w", err)
	}
	if mac := options.DataOut[:6]; !bytes.Equal(mac, OwnMAC) {
		return binary.BigEndian.Uint32(mac[2:]), nil
	}
	return Unsent, nil
}
