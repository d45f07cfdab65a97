// SPDX-License-Identifier: Apache-2.0

package traced

import (
	"encoding/binary"
	"slices"
)

// pattern has the bits that one filter requires in packets of one address family from a client to a VIP, in the form of
// the family's gate.
type pattern struct {
	XdpCaptureGate
	// exact: the filter matches each plain packet to the VIP that has these bits, unless its ports are both 0.
	exact bool
}

// gateOf returns the gate for packets of a family, 4 or 6: the bits that all filters of the used slots require.
func gateOf(slots []XdpCaptureFilter, family uint8) (gate XdpCaptureGate) {
	for i, f := range slots {
		if f.Id == 0 || !isFor(&f, family) {
			continue
		}
		p := patternOf(&f, family)
		if gate.Open == 0 {
			gate = p.XdpCaptureGate
			gate.Open = 1
			if p.exact {
				gate.Only = uint32(i + 1)
			}
			continue
		}
		gate.Only = 0
		common(gate.Client[:], gate.ClientMask[:], p.Client[:], p.ClientMask[:])
		common(gate.Vip[:], gate.VipMask[:], p.Vip[:], p.VipMask[:])
		commonWord(&gate.Ports, &gate.PortsMask, p.Ports, p.PortsMask)
		commonWord(&gate.Protocol, &gate.ProtocolMask, p.Protocol, p.ProtocolMask)
	}
	return gate
}

// isFor reports whether a filter may match packets of a family. An IPv4 address is in the first word.
func isFor(f *XdpCaptureFilter, family uint8) bool {
	if f.Family != 0 {
		return f.Family == family
	}
	return family == 6 || f.ServicePort == 0 || [3]uint32(f.ServiceVip[1:]) == [3]uint32{}
}

// patternOf returns the pattern of a filter that is for the family.
func patternOf(f *XdpCaptureFilter, family uint8) pattern {
	p := pattern{exact: f.Interface == 0}
	p.Client, p.ClientMask, p.Vip, p.VipMask = f.Client, f.ClientMask, f.Vip, f.VipMask
	if f.Protocol != 0 {
		p.Protocol, p.ProtocolMask = uint32(f.Protocol), 0xff
	}
	// The ports are in the order of the header, each in network byte order as the filter has it.
	setPort := func(at int, port uint16) {
		var value, mask [4]byte
		binary.NativeEndian.PutUint16(value[at:], port)
		binary.NativeEndian.PutUint16(mask[at:], 0xffff)
		p.Ports |= binary.NativeEndian.Uint32(value[:])
		p.PortsMask |= binary.NativeEndian.Uint32(mask[:])
	}
	if f.ClientPort != 0 {
		setPort(0, f.ClientPort)
	}
	if f.VipPort != 0 {
		setPort(2, f.VipPort)
	}
	if f.ServicePort != 0 {
		p.addService(f, setPort)
	}
	if family == 4 {
		for _, words := range []*[4]uint32{&p.Client, &p.ClientMask, &p.Vip, &p.VipMask} {
			clear(words[1:])
		}
	}
	return p
}

// addService adds the address and port of a filter's service. If the filter requires another VIP or port besides, no
// packet to the VIP matches both, and the pattern keeps the filter's own.
func (p *pattern) addService(f *XdpCaptureFilter, setPort func(at int, port uint16)) {
	for i, mask := range f.VipMask {
		if f.ServiceVip[i]&mask != f.Vip[i] {
			p.exact = false
			return
		}
	}
	if f.VipPort != 0 && f.VipPort != f.ServicePort {
		p.exact = false
		return
	}
	p.Vip = f.ServiceVip
	p.VipMask = [4]uint32(slices.Repeat([]uint32{0xffffffff}, 4))
	setPort(2, f.ServicePort)
}

// common reduces words and their mask to the bits that are equal in both.
func common(words, mask, others, othersMask []uint32) {
	for i := range words {
		commonWord(&words[i], &mask[i], others[i], othersMask[i])
	}
}

// commonWord is common for one word.
func commonWord(word, mask *uint32, other, otherMask uint32) {
	*mask &= otherMask &^ (*word ^ other)
	*word &= *mask
}

// gatesOf returns the gates of filters: for IPv4 and for IPv6.
func gatesOf(slots []XdpCaptureFilter) [2]XdpCaptureGate {
	return [2]XdpCaptureGate{gateOf(slots, 4), gateOf(slots, 6)}
}
