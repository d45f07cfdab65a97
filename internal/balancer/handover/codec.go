// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Errors that a caller may test for.
var (
	// ErrDamaged: the bytes read are no message of this version.
	ErrDamaged = errors.New("the message is damaged")
	// ErrUntrusted: the other end does not have the members' key.
	ErrUntrusted = errors.New("not a member: it has another key")
	// ErrVersion: the other end speaks another version.
	ErrVersion = errors.New("a member of another version of jeoul")
	// ErrSelf: the other end is this balancer.
	ErrSelf = errors.New("it is this balancer itself, or one of the same name")
	// ErrNoPeer: the other end's address is no peer's.
	ErrNoPeer = errors.New("its address is no member's")
	// ErrName: the other end has another member's name.
	ErrName = errors.New("it has the name of another member")
	// errTooManyConnections: there are as many connections as there may be.
	errTooManyConnections = fmt.Errorf("there are %d connections already", maxConnections)
	// errMixedFamilies: a flow's addresses are of two families.
	errMixedFamilies = errors.New("its addresses are of two families")
)

// Sizes of a flow in bytes, all numbers big-endian: four endpoints (client, VIP, backend, and full NAT's source or the
// last SYN), the protocol, the state, flags, a byte of 0, and the idle time in milliseconds.
const (
	flowBytes4 = 4*(4+2) + 8
	flowBytes6 = 4*(16+2) + 8
)

// flagSource: the fourth endpoint is full NAT's source; otherwise its first four bytes are the last SYN's sequence
// number.
const flagSource = 1

// appendFlow appends an encoded flow. Error: errMixedFamilies.
func appendFlow(b []byte, f *lb.Flow) ([]byte, error) {
	four := f.Client.Addr().Is4()
	ends := [...]netip.AddrPort{f.Client, netip.AddrPortFrom(f.Backend.Service.VIP, f.Backend.Service.Port),
		netip.AddrPortFrom(f.Backend.Address, f.Backend.Port)}
	for _, end := range ends {
		if !end.IsValid() || end.Addr().Is4() != four || end.Addr().Zone() != "" {
			return b, errMixedFamilies
		}
		b = appendEnd(b, end)
	}
	flags := byte(0)
	switch size := len(ends[0].Addr().AsSlice()); {
	case f.Source.IsValid() && f.Source.Addr().Is4() != four:
		return b, errMixedFamilies
	case f.Source.IsValid():
		flags = flagSource
		b = appendEnd(b, f.Source)
	default:
		b = append(binary.BigEndian.AppendUint32(b, f.SYN), make([]byte, size+2-4)...)
	}
	state := slices.Index(lb.FlowStates, f.State)
	if state < 0 {
		return b, fmt.Errorf("its state %q is none", f.State)
	}
	b = append(b, byte(f.Backend.Service.Protocol), byte(state), flags, 0)
	return binary.BigEndian.AppendUint32(b, uint32(min(max(f.Silent.Milliseconds(), 0), math.MaxUint32))), nil
}

func appendEnd(b []byte, end netip.AddrPort) []byte {
	return binary.BigEndian.AppendUint16(append(b, end.Addr().AsSlice()...), end.Port())
}

// flowBytes is the size of a flow with addresses of one family.
func flowBytes(four bool) int {
	if four {
		return flowBytes4
	}
	return flowBytes6
}

// parseFlow reads a flow of one family, of flowBytes. Every flow that is sent is proven.
func parseFlow(b []byte, four bool) (f lb.Flow, err error) {
	if len(b) != flowBytes(four) {
		return f, fmt.Errorf("%w: a flow of %d bytes", ErrDamaged, len(b))
	}
	size := 16
	if four {
		size = 4
	}
	var ends [4]netip.AddrPort
	for i := range ends {
		at := b[i*(size+2):]
		address, _ := netip.AddrFromSlice(at[:size])
		ends[i] = netip.AddrPortFrom(address, binary.BigEndian.Uint16(at[size:]))
	}
	payload := b[4*(size+2):]
	if int(payload[1]) >= len(lb.FlowStates) || payload[2]&^flagSource != 0 || payload[3] != 0 {
		return f, fmt.Errorf("%w: a flow of state %d and flags %d, %d", ErrDamaged, payload[1], payload[2], payload[3])
	}
	f = lb.Flow{Client: ends[0], State: lb.FlowStates[payload[1]], Proven: true,
		Silent: time.Duration(binary.BigEndian.Uint32(payload[4:])) * time.Millisecond,
		Backend: lb.BackendKey{Service: lb.ServiceKey{VIP: ends[1].Addr(), Port: ends[1].Port(),
			Protocol: lb.Protocol(payload[0])}, Address: ends[2].Addr(), Port: ends[2].Port()}}
	if payload[2]&flagSource != 0 {
		f.Source = ends[3]
		return f, nil
	}
	fourth := b[3*(size+2):][:size+2]
	f.SYN = binary.BigEndian.Uint32(fourth)
	for _, zero := range fourth[4:] {
		if zero != 0 {
			return f, fmt.Errorf("%w: a flow with bytes behind its SYN", ErrDamaged)
		}
	}
	return f, nil
}

// kind is the kind of a message.
type kind uint8

const (
	// kindHello is the first message of each end: a JSON of hello.
	kindHello kind = 1 + iota
	// kindBase is a JSON of lb.Base.
	kindBase
	// kindFlows4 and kindFlows6 are flows of one family.
	kindFlows4
	kindFlows6
	// kindAllSent: all flows that existed when the connection was opened, or when a resend began, have been sent.
	kindAllSent
	// kindAck is an answer with the number of handled flows of this connection, in 8 bytes.
	kindAck
	// kindResend is an answer that requests all flows again, because refused flows would be accepted now. A member of
	// an older version closes the connection on it, and sends all flows over the next one.
	kindResend
	// kindRequestEarly is an answer that requests new flows without delay for a while, because packets are about to
	// come here. A member of an older version closes the connection as on kindResend.
	kindRequestEarly
	kinds
)

// version is the version of the protocol; it is in each message, and the first message has it in a word of its own.
const version = 1

// headerBytes is the length of a message's header: version, kind, 2 bytes of 0, and the length of the body.
const headerBytes = 8

// maxBatchBytes bounds a message of flows: with the headers of TLS and TCP it fits a packet.
const maxBatchBytes = 1344

// maxBytes is how long a message may be, by its kind.
func (k kind) maxBytes() int {
	switch k {
	case kindFlows4, kindFlows6, kindHello:
		return maxBatchBytes
	case kindBase:
		return 32 << 20
	case kindAck:
		return 8
	}
	return 0
}

// appendMessage appends a message.
func appendMessage(b []byte, k kind, body []byte) []byte {
	b = append(b, version, byte(k), 0, 0)
	return append(binary.BigEndian.AppendUint32(b, uint32(len(body))), body...)
}

// parseHeader returns the kind of a message and the length of its body.
func parseHeader(b []byte) (k kind, length int, err error) {
	if len(b) < headerBytes {
		return 0, 0, fmt.Errorf("%w: it is cut short", ErrDamaged)
	}
	if b[0] != version {
		return 0, 0, fmt.Errorf("%w: its messages are of version %d, and ours of %d", ErrVersion, b[0], version)
	}
	k = kind(b[1])
	if k == 0 || k >= kinds || b[2]|b[3] != 0 {
		return 0, 0, fmt.Errorf("%w: of kind %d", ErrDamaged, b[1])
	}
	if n := binary.BigEndian.Uint32(b[4:]); int64(n) <= int64(k.maxBytes()) {
		return k, int(n), nil
	}
	return 0, 0, fmt.Errorf("%w: it says that %d bytes follow, and at most %d can", ErrDamaged,
		binary.BigEndian.Uint32(b[4:]), k.maxBytes())
}

// parseFlows appends the flows of a message.
func parseFlows(to []lb.Flow, body []byte, four bool) ([]lb.Flow, error) {
	size := flowBytes(four)
	if len(body)%size != 0 {
		return to, fmt.Errorf("%w: %d bytes are no number of flows", ErrDamaged, len(body))
	}
	for ; len(body) > 0; body = body[size:] {
		f, err := parseFlow(body[:size], four)
		if err != nil {
			return to, err
		}
		to = append(to, f)
	}
	return to, nil
}

func encodeBase(b *lb.Base) ([]byte, error) {
	body, err := json.Marshal(b)
	if err == nil && len(body) > kindBase.maxBytes() {
		err = fmt.Errorf("it takes %d bytes, and a message can have %d", len(body), kindBase.maxBytes())
	}
	if err != nil {
		return nil, fmt.Errorf("writing the base of %s: %w", b.Service, err)
	}
	return appendMessage(nil, kindBase, body), nil
}

func writeHello(to io.Writer, name string) error {
	body, err := json.Marshal(hello{name})
	if err == nil {
		_, err = to.Write(appendMessage(nil, kindHello, body))
	}
	return err
}

func readHello(from io.Reader) (string, error) {
	k, body, err := readMessage(from)
	if err != nil {
		return "", err
	}
	var h hello
	if err := json.Unmarshal(body, &h); k != kindHello || err != nil || h.Name == "" {
		return "", fmt.Errorf("%w: it does not say who it is", ErrDamaged)
	}
	return h.Name, nil
}

func readMessage(from io.Reader) (kind, []byte, error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return 0, nil, err
	}
	k, length, err := parseHeader(header[:])
	if err != nil {
		return 0, nil, err
	}
	body := make([]byte, length)
	_, err = io.ReadFull(from, body)
	return k, body, err
}

// maxConnections bounds the connections of peers.
const maxConnections = 64

// hello is the first message of each end.
type hello struct {
	// Name is the name of the sender.
	Name string `json:"name"`
}
