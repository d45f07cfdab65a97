// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// captured is a packet for tests.
func captured(leaves []byte) *Packet {
	slot := uint32(17)
	return &Packet{
		Packet: trace.Packet{Time: time.Unix(1767323045, 123456789), Hook: lb.HookXDP, Interface: "eth0",
			Outcome: "forwarded", Help: "sent on to a backend",
			Service: &trace.Service{Name: "web", VIP: netip.MustParseAddr("192.0.2.100"), Port: 80, Protocol: lb.TCP,
				Mode: lb.NAT, Scheduler: lb.Maglev},
			Backend: &trace.Backend{Name: "web03", Address: netip.MustParseAddr("192.0.2.3"), Port: 8080}, Slot: &slot,
			Slots: 251,
			Came: &trace.Flow{Source: netip.MustParseAddr("192.0.2.7"), SourcePort: 4711,
				Destination: netip.MustParseAddr("192.0.2.100"), DestinationPort: 80, Protocol: "tcp", Length: 44},
			Leaves: []trace.Layer{{Name: "ipv4", Fields: []trace.Field{{Name: "source", Value: "192.0.2.7"},
				{Name: "destination", Value: "192.0.2.3"}}}}},
		Count: 1, FrameIn: Frame{Length: 1514, Bytes: []byte{1, 2, 3}},
		FrameOut: Frame{Length: 1514, Bytes: leaves},
	}
}

var testStarted = &Started{Hooks: []Point{{"eth0", lb.HookXDP}, {"eth1", lb.HookTC}}}

// readBack reads a file by the library: a line for each packet.
func readBack(t *testing.T, file []byte) (lines, interfaces []string) {
	t.Helper()
	options := pcapgo.DefaultNgReaderOptions
	options.WantMixedLinkType = true
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), options)
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, info, packet, err := r.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		of, err := r.Interface(info.InterfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		if info.Length != 1514 || !info.Timestamp.Equal(captured(nil).Time) {
			t.Errorf("a packet of %d bytes, at %v", info.Length, info.Timestamp)
		}
		lines = append(lines, of.Name+" "+string('0'+data[0])+" "+strings.Join(packet.Comments, "|"))
	}
	for i := range r.NInterfaces() {
		of, _ := r.Interface(i)
		interfaces = append(interfaces, of.Name)
	}
	return lines, interfaces
}

// TestWriter writes packets that leave changed and unchanged, and reads them back.
func TestWriter(t *testing.T) {
	comments := strings.Join(captured(nil).Comments(), "|")
	want := "outcome: forwarded (sent on to a backend)|service: web (tcp 192.0.2.100:80, nat, maglev)|backend: web03 (192.0.2.3:8080)|reason: slot 17 of 251|" +
		"came as: tcp 192.0.2.7:4711 → 192.0.2.100:80, 44 bytes|leaves as: ipv4 192.0.2.7 → 192.0.2.3"
	if diff := cmp.Diff(want, comments); diff != "" {
		t.Errorf("comments (-want +got):\n%s", diff)
	}
	in, out := "eth0:xdp:in 1 "+comments, "eth0:xdp:out 4 "+comments
	for frames, want := range map[Frames]struct{ lines, interfaces []string }{
		FramesIn:   {[]string{in, in}, []string{"eth0:xdp:in", "eth1:tc:in"}},
		FramesOut:  {[]string{out, "eth0:xdp:out 1 " + comments}, []string{"eth0:xdp:out", "eth1:tc:out"}},
		FramesBoth: {[]string{in, out, in}, []string{"eth0:xdp:in", "eth0:xdp:out", "eth1:tc:in", "eth1:tc:out"}},
	} {
		var file bytes.Buffer
		w, err := NewWriter(&file, testStarted, frames, "jeoul test")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []*Packet{captured([]byte{4, 5, 6}), captured(nil)} {
			if err := w.Write(p); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		lines, interfaces := readBack(t, file.Bytes())
		if diff := cmp.Diff(want.lines, lines); diff != "" {
			t.Errorf("%s (-want +got):\n%s", frames, diff)
		}
		if diff := cmp.Diff(want.interfaces, interfaces); diff != "" {
			t.Errorf("%s: interfaces (-want +got):\n%s", frames, diff)
		}
	}
}

// fullDisk takes so many bytes.
type fullDisk int

func (d *fullDisk) Write(b []byte) (int, error) {
	if *d -= fullDisk(len(b)); *d < 0 {
		return 0, errors.New("no space left on device")
	}
	return len(b), nil
}

func TestWriterOnAFullDisk(t *testing.T) {
	disk := fullDisk(1000)
	w, err := NewWriter(&disk, testStarted, FramesIn, "jeoul test")
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err = errors.Join(w.Write(captured(nil)), w.Flush()); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "writing the capture file: no space left on device") {
		t.Errorf("error %v", err)
	}
}

// FuzzWriter writes packets of any words, and reads each back.
func FuzzWriter(f *testing.F) {
	f.Add("forwarded", "web", "eth0", []byte{1}, 60)
	f.Add("\xff", strings.Repeat("x", 70000), "\x00", []byte{}, -1)
	f.Fuzz(func(t *testing.T, outcome, service, nic string, frame []byte, length int) {
		if len(nic) > 60000 {
			return // no interface of Linux has more than 15 bytes
		}
		p := captured(nil)
		p.Outcome, p.Service.Name, p.Interface = outcome, service, nic
		p.FrameIn = Frame{Length: min(length, 1<<20), Bytes: frame}
		var file bytes.Buffer
		w, err := NewWriter(&file, testStarted, FramesIn, "jeoul test")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Write(p), w.Flush()); err != nil {
			t.Fatal(err)
		}
		r, err := pcapgo.NewNgReader(&file, pcapgo.DefaultNgReaderOptions)
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := r.ReadPacketData()
		if err != nil || !bytes.Equal(data, frame) {
			t.Errorf("%x was read as %x, %v", frame, data, err)
		}
	})
}

// TestProgress ends captures at their bounds, and tells how many packets were left out.
func TestProgress(t *testing.T) {
	for name, test := range map[string]struct {
		request  Request
		packets  int
		counts   Counts
		beyond   bool
		stopping bool
		ended    Reason
		told     int
	}{
		"packets":  {request: Request{Packets: 2}, packets: 3, ended: EndPackets, told: 2},
		"bytes":    {request: Request{}, packets: 3, counts: Counts{Captured: 3}, beyond: true, ended: EndBytes, told: 3},
		"time":     {request: Request{}, packets: 1, ended: EndTime, told: 1},
		"stopping": {request: Request{}, packets: 1, stopping: true, ended: EndClosed, told: 1},
	} {
		ends, notified := 0, 0
		var last Event
		p := NewProgress(test.request, func(e Event) error {
			if e.Packet != nil {
				notified++
			}
			last = e
			return nil
		}, func() { ends++ })
		for range test.packets {
			if err := p.Packet(&Packet{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(p.Count(test.counts, test.beyond), p.End(test.stopping)); err != nil {
			t.Fatal(err)
		}
		early := test.ended == EndPackets || test.ended == EndBytes
		if notified != test.told || last.Ended != test.ended || *last.Counts != test.counts || early != (ends > 0) {
			t.Errorf("%s: told of %d packets, ended %d times by %q with %+v", name, notified, ends, last.Ended, last.Counts)
		}
	}
	var counts []Counts
	p := NewProgress(Request{}, func(e Event) error { counts = append(counts, *e.Counts); return nil }, nil)
	for _, c := range []Counts{{Matched: 1}, {Matched: 2, Lost: 1}, {Matched: 3, Lost: 1},
		{Matched: 3, Lost: 1, Limited: 1}} {
		if err := p.Count(c, false); err != nil {
			t.Fatal(err)
		}
	}
	if len(counts) != 2 {
		t.Errorf("told of %+v", counts)
	}
}

func TestOutcomeBits(t *testing.T) {
	names := []string{"forwarded", "passed_no_service", "dropped_denied", "dropped_no_flow"}
	for want, words := range map[uint64][]string{^uint64(0): nil, 1: {"forwarded"}, 12: {"dropped"},
		9: {"dropped_no_flow", "forwarded"}} {
		if got, err := OutcomeBits(words, names); err != nil || got != want {
			t.Errorf("%v: %b, %v, want %b", words, got, err, want)
		}
	}
	if _, err := OutcomeBits([]string{"drop"}, names); !errors.Is(err, ErrBadRequest) ||
		!strings.HasSuffix(err.Error(),
			`no outcome "drop"; use dropped, dropped_denied, dropped_no_flow, forwarded, passed, passed_no_service`) {
		t.Errorf("%v", err)
	}
}

// TestNamesAreNoControl has names that would end a line, act on a terminal, or turn text around.
func TestNamesAreNoControl(t *testing.T) {
	const name = "web\n00:00:00.000000 eth0\x1b[2J\u202e\x00\xff"
	p := captured(nil)
	p.Service.Name, p.Backend.Name, p.Interface = name, name, name
	const want = "web?00:00:00.000000 eth0?[2J??\ufffd"
	if line := p.Line(); strings.Count(line, want) != 3 {
		t.Errorf("line %q", line)
	}
	for _, comment := range p.Comments() {
		if strings.ContainsFunc(comment, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("comment %q", comment)
		}
	}
	var messages bytes.Buffer
	o := Output{Messages: &messages}
	if err := o.Notify(Event{Started: &Started{Hooks: []Point{{name, lb.HookXDP}},
		Notes: []string{name}}}); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(messages.String(), "\n"); len(lines) != 3 || strings.Contains(messages.String(), "\x1b") {
		t.Errorf("messages %q", messages.String())
	}
}

// smallDisk takes so many bytes, and of a write those that fit.
type smallDisk struct {
	bytes.Buffer
	room int
}

func (d *smallDisk) Write(b []byte) (int, error) {
	n, _ := d.Buffer.Write(b[:min(len(b), d.room-d.Len())])
	if n < len(b) {
		return n, errors.New("no space left on device")
	}
	return n, nil
}

func (d *smallDisk) Truncate(size int64) error {
	d.Buffer.Truncate(int(size))
	return nil
}

// TestFileEndsWithAWholePacket fills disks of many sizes: the file can be read to its end.
func TestFileEndsWithAWholePacket(t *testing.T) {
	for room := 1000; room < 2500; room += 7 {
		disk := &smallDisk{room: room}
		o := Output{File: &WholePackets{File: disk}, Messages: io.Discard, Frames: FramesBoth}
		err := o.Notify(Event{Started: testStarted})
		packets := 0
		for ; err == nil; packets++ {
			err = o.Notify(Event{Packet: captured([]byte{4, 5, 6})})
		}
		packets--
		if want := fmt.Sprintf("after %d packets: ", packets); !strings.Contains(err.Error(), want) {
			t.Fatalf("%d bytes: %v, want %q", room, err, want)
		}
		if lines, _ := readBack(t, disk.Bytes()); len(lines) != 2*packets {
			t.Fatalf("%d bytes: %d frames, want %d", room, len(lines), 2*packets)
		}
	}
}
