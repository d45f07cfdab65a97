// SPDX-License-Identifier: Apache-2.0

// Package bfd finds within milliseconds that a neighbour is not reached any more: Bidirectional Forwarding Detection
// (RFC 5880) over one hop (RFC 5881), in asynchronous mode, without authentication and without the echo function. A
// Session is the protocol as a function of packets and time; an Engine has the sockets and the thread.
//
// It is our own because a detection time of 150 ms must not depend on when the runtime schedules a goroutine: an Engine
// sends from a thread of its own, which waits in ppoll, and says which packets this host sent too late. GoBGP's BFD
// (4.8) shares its peers' goroutines and ends the session after the one that failed; other implementations in Go are
// parts of routers, such as SCION's, or experiments. Where FRR or BIRD run on the host, `speaker: local` leaves BFD to
// them. Once GoBGP ends the session that failed, and can be given a sender of its own, this package may go.
package bfd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Errors of packets that are not taken (RFC 5880 section 6.8.6).
var (
	ErrShort          = errors.New("is shorter than a BFD packet")
	ErrVersion        = errors.New("is of another version of BFD than 1")
	ErrLength         = errors.New("says another length than it has")
	ErrMultiplier     = errors.New("has the detection multiplier 0")
	ErrMultipoint     = errors.New("is of a session of several points")
	ErrDiscriminator  = errors.New("has the discriminator 0")
	ErrAuthenticated  = errors.New("is authenticated, which this balancer does not speak")
	ErrUnknownSession = errors.New("is of another session: its discriminator is not ours")
)

// State is the state of a session (RFC 5880 section 4.1).
type State uint8

// The states, as they are in packets.
const (
	AdminDown State = iota
	Down
	Init
	Up
)

var stateNames = [...]string{"admin-down", "down", "init", "up"}

// String is the state in lower case.
func (s State) String() string { return stateNames[s&3] }

// Diagnostic is the reason why a session went down last (RFC 5880 section 4.1).
type Diagnostic uint8

// The diagnostics that this package gives.
const (
	NoDiagnostic       Diagnostic = 0
	DetectionExpired   Diagnostic = 1
	NeighborSignaled   Diagnostic = 3
	AdministrativeDown Diagnostic = 7
)

var diagnosticNames = [...]string{"none", "control detection time expired", "echo function failed",
	"neighbor signaled session down",
	"forwarding plane reset", "path down", "concatenated path down", "administratively down",
	"reverse concatenated path down"}

// String is the RFC's name.
func (d Diagnostic) String() string {
	if int(d) < len(diagnosticNames) {
		return diagnosticNames[d]
	}
	return fmt.Sprintf("diagnostic %d", uint8(d))
}

// Packet is a control packet.
type Packet struct {
	Diagnostic Diagnostic
	State      State
	// Poll asks for a packet with Final.
	Poll, Final bool
	// ControlPlaneIndependent: the sender's BFD does not share the fate of its control plane.
	ControlPlaneIndependent bool
	Demand                  bool
	Multiplier              uint8
	// MyDiscriminator is the sender's discriminator, and YourDiscriminator the receiver's; 0: the sender does not know
	// it.
	MyDiscriminator, YourDiscriminator uint32
	// DesiredMinTx, RequiredMinRx and RequiredMinEchoRx are in microseconds on the wire.
	DesiredMinTx, RequiredMinRx, RequiredMinEchoRx time.Duration
}

// packetLength is the length of a packet without authentication, in bytes; authentication adds at least 2.
const packetLength = 24

// The bits of the second byte, below the state's two.
const (
	bitPoll = 1 << 5 >> iota
	bitFinal
	bitIndependent
	bitAuthenticated
	bitDemand
	bitMultipoint
)

// version is in the upper three bits of the first byte.
const version = 1

// Parse reads a UDP payload, with all checks of RFC 5880 section 6.8.6 that need no session. Bytes behind the length in
// the packet are ignored, as there.
func Parse(b []byte) (Packet, error) {
	if len(b) < packetLength {
		return Packet{}, fmt.Errorf("a packet of %d bytes %w", len(b), ErrShort)
	}
	if b[0]>>5 != version {
		return Packet{}, ErrVersion
	}
	flags, length, least := b[1], int(b[3]), packetLength
	if flags&bitAuthenticated != 0 {
		least += 2
	}
	if length < least || length > len(b) {
		return Packet{}, fmt.Errorf("a packet of %d bytes %w: %d", len(b), ErrLength, length)
	}
	p := Packet{
		Diagnostic: Diagnostic(b[0] & 0x1f), State: State(flags >> 6), Poll: flags&bitPoll != 0,
		Final:                   flags&bitFinal != 0,
		ControlPlaneIndependent: flags&bitIndependent != 0, Demand: flags&bitDemand != 0, Multiplier: b[2],
		MyDiscriminator: binary.BigEndian.Uint32(b[4:]), YourDiscriminator: binary.BigEndian.Uint32(b[8:]),
		DesiredMinTx: micros(b[12:]), RequiredMinRx: micros(b[16:]), RequiredMinEchoRx: micros(b[20:]),
	}
	switch {
	case p.Multiplier == 0:
		return Packet{}, ErrMultiplier
	case flags&bitMultipoint != 0:
		return Packet{}, ErrMultipoint
	case p.MyDiscriminator == 0:
		return Packet{}, ErrDiscriminator
	case p.YourDiscriminator == 0 && p.State > Down:
		return Packet{}, fmt.Errorf("a packet in state %s %w", p.State, ErrDiscriminator)
	case flags&bitAuthenticated != 0:
		return Packet{}, ErrAuthenticated
	}
	return p, nil
}

// Append writes the packet behind b.
func (p Packet) Append(b []byte) []byte {
	flags := byte(p.State) << 6
	for _, f := range []struct {
		set bool
		bit byte
	}{{p.Poll, bitPoll}, {p.Final, bitFinal}, {p.ControlPlaneIndependent, bitIndependent}, {p.Demand, bitDemand}} {
		if f.set {
			flags |= f.bit
		}
	}
	b = append(b, version<<5|byte(p.Diagnostic)&0x1f, flags, p.Multiplier, packetLength)
	b = binary.BigEndian.AppendUint32(b, p.MyDiscriminator)
	b = binary.BigEndian.AppendUint32(b, p.YourDiscriminator)
	for _, d := range []time.Duration{p.DesiredMinTx, p.RequiredMinRx, p.RequiredMinEchoRx} {
		b = binary.BigEndian.AppendUint32(b, uint32(d.Microseconds()))
	}
	return b
}

func micros(b []byte) time.Duration {
	return time.Duration(binary.BigEndian.Uint32(b)) * time.Microsecond
}
