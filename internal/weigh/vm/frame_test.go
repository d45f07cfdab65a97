// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func wire(t testing.TB, frames ...Frame) []byte {
	t.Helper()
	var to bytes.Buffer
	for _, f := range frames {
		if err := WriteFrame(&to, f); err != nil {
			t.Fatal(err)
		}
	}
	return to.Bytes()
}

func TestFramesComeBack(t *testing.T) {
	want := []Frame{
		{Kind: FrameHello, Payload: []byte(`{}`)},
		{Kind: FrameLine, Payload: []byte("1/3 direct: 4100 requests/s")},
		{Kind: FrameResult, Payload: bytes.Repeat([]byte{0, 1, 0xff}, 100_000)},
		{Kind: FrameInterrupt, Payload: nil},
	}
	r := NewReader(iotestOneByte{bytes.NewReader(wire(t, want...))})
	for i, f := range want {
		got, err := r.Next()
		if err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		if got.Kind != f.Kind || !bytes.Equal(got.Payload, f.Payload) {
			t.Errorf("frame %d is %c with %d bytes, want %c with %d", i, got.Kind, len(got.Payload), f.Kind,
				len(f.Payload))
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last frame: %v, want io.EOF", err)
	}
}

// iotestOneByte returns one byte at a time, as a slow port may.
type iotestOneByte struct{ from io.Reader }

func (r iotestOneByte) Read(p []byte) (int, error) { return r.from.Read(p[:min(1, len(p))]) }

func TestWhatIsNoFrame(t *testing.T) {
	good := wire(t, Frame{FrameLine, []byte("hello")})
	changed := func(at int, to byte) []byte {
		c := bytes.Clone(good)
		c[at] = to
		return c
	}
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"unknown kind":       {changed(0, 'x'), "kind 0x78"},
		"absurd length":      {changed(1, 0xff), "claims"},
		"changed payload":    {changed(6, 'a'), "checksum"},
		"changed checksum":   {changed(len(good)-1, good[len(good)-1]+1), "checksum"},
		"cut in the head":    {good[:3], "ended in its head"},
		"cut in the payload": {good[:7], "ended in its payload"},
		"cut in the sum":     {good[:len(good)-1], "ended in its checksum"},
	} {
		_, err := NewReader(bytes.NewReader(test.data)).Next()
		if !errors.Is(err, ErrFrame) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want one that says %q", name, err, test.want)
		}
	}
	if err := WriteFrame(io.Discard, Frame{FrameResult, make([]byte, maxPayload+1)}); !errors.Is(err, ErrFrame) {
		t.Errorf("a payload that is too long: %v", err)
	}
}

// FuzzFrames: on any input, reading ends without a panic, and frames that were read are written as the same bytes.
func FuzzFrames(f *testing.F) {
	f.Add(wire(f, Frame{FrameHello, []byte("{}")}, Frame{FrameEnd, []byte(`{"status":0}`)}))
	f.Add([]byte("L\x00\x00\x00\x05hello\x00\x00\x00\x00"))
	f.Add([]byte("R\x03\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewReader(bytes.NewReader(data))
		var again bytes.Buffer
		for {
			frame, err := r.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, ErrFrame) {
					t.Fatalf("an error of another kind: %v", err)
				}
				break
			}
			if err := WriteFrame(&again, frame); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(data[:again.Len()], again.Bytes()) {
			t.Errorf("%x was read, and written as %x", data[:again.Len()], again.Bytes())
		}
	})
}
