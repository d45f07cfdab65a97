// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/hostnet"
)

// stage changes packets that leave an interface for a VIP as a balancer does, in the kernel: with the GSO packets and
// the partial checksums that TCP sends between hosts on one machine. It is a different program than the balancer's, so
// that both cannot have the same bug.
type stage struct {
	mode           lb.Mode
	vip, from, to  netip.Addr // of the service; of the outer header
	point          uint8      // mode dscp
	instructions   asm.Instructions
	outer6, inner6 bool
}

// Offsets in the stack, in bytes.
const (
	stackHeader = -64
	stackWord   = -72
)

// attach attaches the program to the egress of eth0 in the calling thread's namespace, in the way that every kernel
// supports. Close removes it.
func (s stage) attach(dir string) (*hostnet.Changes, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: s.program()})
	if err != nil {
		return nil, fmt.Errorf("%+v", err)
	}
	defer p.Close()
	changes, err := hostnet.Open(dir, "stage")
	if err != nil {
		return nil, err
	}
	return changes, changes.AddFilter("eth0", hostnet.Filter{Name: "stage", FD: p.FD(), Egress: true})
}

func (s *stage) add(i ...asm.Instruction) { s.instructions = append(s.instructions, i...) }

// call calls a helper with the context and constants. If the helper fails, the program jumps to its end.
func (s *stage) call(f asm.BuiltinFunc, arguments ...int64) {
	s.add(asm.Mov.Reg(asm.R1, asm.R6))
	for i, a := range arguments {
		s.add(asm.LoadImm(asm.R2+asm.Register(i), a, asm.DWord))
	}
	s.add(f.Call(), asm.JNE.Imm(asm.R0, 0, "drop"))
}

// fromStack calls bpf_skb_store_bytes or bpf_skb_load_bytes with an address on the stack.
func (s *stage) fromStack(f asm.BuiltinFunc, at int64, stack int32, length int64, more ...asm.Instruction) {
	s.add(asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, int32(at)),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, stack), asm.Mov.Imm(asm.R4, int32(length)))
	s.add(more...)
	s.add(f.Call(), asm.JNE.Imm(asm.R0, 0, "drop"))
}

func (s *stage) store(at int64, stack int32, length int64) {
	s.fromStack(asm.FnSkbStoreBytes, at, stack, length, asm.Mov.Imm(asm.R5, 0))
}

// put writes bytes to the stack.
func (s *stage) put(stack int32, data []byte) {
	for i, b := range data {
		s.add(asm.StoreImm(asm.RFP, int16(stack)+int16(i), int64(b), asm.Byte))
	}
}

const ethernet = 14

func (s stage) program() asm.Instructions {
	s.outer6, s.inner6 = s.to.Is6(), s.vip.Is6()
	s.add(asm.Mov.Reg(asm.R6, asm.R1))
	s.match()
	if s.mode == lb.DSCP {
		s.mark()
	} else {
		s.wrap()
	}
	s.add(asm.Mov.Imm(asm.R0, -1).WithSymbol("pass"), asm.Return(),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("drop"), asm.Return())
	return s.instructions
}

// match lets all packets pass that are not for the VIP, by its last four bytes.
func (s *stage) match() {
	kind, at := uint16(0x0800), int64(ethernet+16)
	if s.inner6 {
		kind, at = 0x86dd, ethernet+24+12
	}
	last := s.vip.AsSlice()[s.vip.BitLen()/8-4:]
	s.add(asm.LoadMem(asm.R0, asm.R6, 16, asm.Word), // __sk_buff.protocol
		asm.HostTo(asm.BE, asm.R0, asm.Half),
		asm.JNE.Imm(asm.R0, int32(kind), "pass"))
	s.fromStack(asm.FnSkbLoadBytes, at, stackWord, 4)
	s.add(asm.LoadMem(asm.R0, asm.RFP, stackWord, asm.Word),
		asm.LoadImm(asm.R1, int64(binary.NativeEndian.Uint32(last)), asm.DWord),
		asm.JNE.Reg(asm.R0, asm.R1, "pass"))
}

// wrap adds the outer headers to the packet.
func (s *stage) wrap() {
	header := s.outer()
	flags := int64(1 << 1) // BPF_F_ADJ_ROOM_ENCAP_L3_IPV4
	if s.outer6 {
		flags = 1 << 2
	}
	if s.mode == lb.GUE {
		flags |= 1 << 4 // BPF_F_ADJ_ROOM_ENCAP_L4_UDP
	}
	s.call(asm.FnSkbAdjustRoom, int64(len(header)), 1, flags)
	s.put(stackHeader, header)
	s.store(ethernet, stackHeader, int64(len(header)))
	kind := []byte{0x08, 0x00}
	if s.outer6 {
		kind = []byte{0x86, 0xdd}
	}
	s.put(stackWord, kind)
	s.store(12, stackWord, 2)
	if s.outer6 {
		s.length(ethernet+40, ethernet+4)
	} else {
		s.length(ethernet, ethernet+2)
		s.add(asm.LoadMem(asm.R4, asm.RFP, stackWord, asm.Half),
			asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, ethernet+10), asm.Mov.Imm(asm.R3, 0),
			asm.Mov.Imm(asm.R5, 2),
			asm.FnL3CsumReplace.Call(), asm.JNE.Imm(asm.R0, 0, "drop"))
	}
	if s.mode == lb.GUE {
		ip := int64(len(header) - 8)
		s.length(ethernet+ip, ethernet+ip+4)
	}
}

// length stores the length of the frame from an offset on.
func (s *stage) length(from, at int64) {
	s.add(asm.LoadMem(asm.R0, asm.R6, 0, asm.Word), // __sk_buff.len
		asm.Sub.Imm(asm.R0, int32(from)), asm.HostTo(asm.BE, asm.R0, asm.Half),
		asm.StoreMem(asm.RFP, stackWord, asm.R0, asm.Half))
	s.store(at, stackWord, 2)
}

// outer returns the outer headers with lengths of 0, and the checksum for these.
func (s *stage) outer() []byte {
	inner := byte(4)
	if s.inner6 {
		inner = 41
	}
	if s.mode == lb.GUE {
		inner = 17
	}
	var header []byte
	if s.outer6 {
		header = append([]byte{0x60, 0, 0, 0, 0, 0, inner, 64}, append(s.from.AsSlice(), s.to.AsSlice()...)...)
	} else {
		header = append([]byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, inner, 0, 0},
			append(s.from.AsSlice(), s.to.AsSlice()...)...)
		binary.BigEndian.PutUint16(header[10:], ^onesSum(header))
	}
	if s.mode == lb.GUE {
		header = append(header, 0xc0, 1, 0x17, 0xc0, 0, 0, 0, 0)
	}
	return header
}

// onesSum returns the ones' complement sum of 16-bit words (RFC 1071).
func onesSum(data []byte) uint16 {
	var sum uint32
	for i := 0; i < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// mark replaces the VIP by the host's address, and sets the code point. It supports only TCP, without extension
// headers.
func (s *stage) mark() {
	vip, host := s.vip.AsSlice(), s.to.AsSlice()
	difference := onesSum(append(host, complement(vip)...))
	transport, address := int64(ethernet+20), int64(ethernet+16)
	if s.inner6 {
		transport, address = ethernet+40, ethernet+24
	}
	// The sum is in network byte order.
	change := int64(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, difference)))
	s.call(asm.FnL4CsumReplace, transport+16, 0, change, 1<<4) // BPF_F_PSEUDO_HDR
	s.put(stackHeader, host)
	s.store(address, stackHeader, int64(len(host)))
	if s.inner6 {
		s.put(stackWord, []byte{0x60 | s.point>>2, s.point << 6})
		s.store(ethernet, stackWord, 2)
		return
	}
	head := int64(binary.NativeEndian.Uint16([]byte{0x45, s.point << 2}))
	plain := int64(binary.NativeEndian.Uint16([]byte{0x45, 0}))
	s.call(asm.FnL3CsumReplace, ethernet+10, int64(binary.NativeEndian.Uint32(vip)),
		int64(binary.NativeEndian.Uint32(host)), 4)
	s.call(asm.FnL3CsumReplace, ethernet+10, plain, head, 2)
	s.put(stackWord, []byte{0x45, s.point << 2})
	s.store(ethernet, stackWord, 2)
}

// passAll leaves every packet to the next filter.
var passAll = asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}

func complement(data []byte) []byte {
	out := make([]byte, len(data))
	for i, b := range data {
		out[i] = ^b
	}
	return out
}
