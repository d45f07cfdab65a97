// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

var example = Packet{Diagnostic: DetectionExpired, State: Up, Poll: true, ControlPlaneIndependent: true, Multiplier: 3,
	MyDiscriminator: 0x01020304, YourDiscriminator: 0x0a0b0c0d,
	DesiredMinTx: 50 * time.Millisecond, RequiredMinRx: 60 * time.Millisecond, RequiredMinEchoRx: 7 * time.Microsecond}

// exampleBytes was written by hand from the figure in RFC 5880 section 4.1.
var exampleBytes = []byte{0x21, 0xe8, 3, 24, 1, 2, 3, 4, 0x0a, 0x0b, 0x0c, 0x0d, 0, 0, 0xc3, 0x50, 0, 0, 0xea, 0x60,
	0, 0, 0, 7}

func TestPacket(t *testing.T) {
	t.Parallel()
	if got := example.Append(nil); !bytes.Equal(got, exampleBytes) {
		t.Errorf("written: % x, want % x", got, exampleBytes)
	}
	// A UDP payload may be longer than the packet.
	if got, err := Parse(append(bytes.Clone(exampleBytes), 9, 9)); err != nil || got != example {
		t.Errorf("read: %+v, %v", got, err)
	}
}

// TestRefused: packets that RFC 5880 section 6.8.6 has discarded are, with the reason.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		corrupt func([]byte) []byte
		want    error
	}{
		{"nothing", func([]byte) []byte { return nil }, ErrShort},
		{"one byte less", func(b []byte) []byte { return b[:23] }, ErrShort},
		{"version 0", func(b []byte) []byte { b[0] = 0; return b }, ErrVersion},
		{"a length below that of a packet", func(b []byte) []byte { b[3] = 23; return b }, ErrLength},
		{"a length beyond the payload", func(b []byte) []byte { b[3] = 25; return b }, ErrLength},
		{"authentication without its bytes", func(b []byte) []byte { b[1] |= bitAuthenticated; return b }, ErrLength},
		{"authentication", func(b []byte) []byte { b[1] |= bitAuthenticated; b[3] = 26; return append(b, 1, 2) },
			ErrAuthenticated},
		{"multiplier 0", func(b []byte) []byte { b[2] = 0; return b }, ErrMultiplier},
		{"multipoint", func(b []byte) []byte { b[1] |= bitMultipoint; return b }, ErrMultipoint},
		{"no discriminator of its own", func(b []byte) []byte { clear(b[4:8]); return b }, ErrDiscriminator},
		{"none of ours, in Up", func(b []byte) []byte { clear(b[8:12]); return b }, ErrDiscriminator},
	} {
		if _, err := Parse(c.corrupt(bytes.Clone(exampleBytes))); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	down := bytes.Clone(exampleBytes)
	down[1] = byte(Down) << 6
	clear(down[8:12])
	if _, err := Parse(down); err != nil {
		t.Errorf("none of ours, in Down: %v", err)
	}
}

// FuzzParse: whatever comes, an accepted packet is written and read again as it was, and a session takes it without
// harm.
func FuzzParse(f *testing.F) {
	f.Add(exampleBytes)
	f.Add([]byte{0x20, 0x40, 1, 24})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse(b)
		if err != nil {
			return
		}
		if again, err := Parse(p.Append(nil)); err != nil || again != p {
			t.Fatalf("%+v is read again as %+v, %v", p, again, err)
		}
		now := time.Unix(1000, 0)
		s := New(Timing{50 * time.Millisecond, 3}, p.YourDiscriminator|1, func() float64 { return 0.5 }, now)
		for _, state := range []State{Down, Init, Up} {
			q := p
			q.State, q.YourDiscriminator = state, s.local
			_, _ = s.HandlePacket(q, now)
		}
		_, _ = s.HandlePacket(p, now)
		for range 3 {
			s.PacketsDue(now)
			if due := s.Due(now); !due.IsZero() && due.Before(now.Add(-time.Hour)) {
				t.Fatalf("due at %v", due)
			}
			now = now.Add(time.Second)
			s.CheckDetection(now)
		}
	})
}
