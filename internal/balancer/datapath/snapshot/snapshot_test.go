// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

func example() (Head, []Service) {
	backends := []netip.AddrPort{netip.MustParseAddrPort("198.18.0.1:80"), netip.MustParseAddrPort("198.18.0.2:80")}
	table := Recipe{Scheduler: lb.Maglev, Size: 7, All: backends, Shares: []uint32{1, 1}, Owners: backends[:1],
		Weights: []uint32{1}, Absent: []int{1}}
	service := Service{
		Service: lb.Service{Name: "web", VIP: netip.MustParseAddr("192.0.2.1"), Port: 80, Protocol: lb.TCP,
			Mode: lb.NAT, Scheduler: lb.Maglev,
			Untranslated: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		Backends: []Backend{{Backend: lb.Backend{Name: "a", Address: backends[0].Addr(), Port: 80, Weight: 1}},
			{Backend: lb.Backend{Name: "b", Address: backends[1].Addr(), Port: 80, Draining: true}, Unhealthy: "fails"}},
		ID: 3, Exceptions: 1, Places: []Place{{2, 1}, {0, 5}}, Table: table, Base: &table,
		Moved: &Slots{Size: 7, Bits: []uint64{5}}, Since: time.Unix(1000, 0).UTC(), Until: time.Unix(2000, 0).UTC()}
	head := Head{Number: 9, Written: time.Unix(1500, 7).UTC(), Cookie: 1 << 40,
		Layouts: map[string]string{"flows": "abc"}, Outcomes: []string{"forwarded"},
		CountedOutcomes: map[string]uint64{"forwarded": 3}, Interfaces: []Interface{{"eth0", 2}},
		Hook: lb.HookTC, Secret: 1<<64 - 1, Generations: []uint16{5, 7, 1, 2}, Free: []uint32{1}, IDs: 6,
		FreeIDs: []uint32{0, 5}, Quarantine: []uint32{4},
		Previous: []Endpoint{{Address: netip.MustParseAddrPort("198.18.0.3:80"), Protocol: lb.TCP,
			VIP: netip.MustParseAddrPort("192.0.2.1:80"), Index: 3, Until: time.Unix(3000, 0).UTC()}},
		Before: []Count{{Index: 2, Packets: 4}}, Shown: []Feature{{"eth0", "rx-vlan-hw-parse"}}}
	return head, []Service{service}
}

func encode(t testing.TB, h Head, services []Service) []byte {
	t.Helper()
	var lines [][]byte
	for i := range services {
		line, err := services[i].Line()
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	data, err := Encode(h, lines)
	if err != nil {
		t.Fatal(err)
	}
	return data.Bytes()
}

func TestDecode(t *testing.T) {
	head, services := example()
	got, err := Decode(encode(t, head, services))
	if err != nil {
		t.Fatal(err)
	}
	head.Format, head.Version, head.Lines = format, Version, 1
	if want := (&Snapshot{head, services}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// TestLinesAreReadAsByTheStandardLibrary, which other builds read them with.
func TestLinesAreReadAsByTheStandardLibrary(t *testing.T) {
	_, services := example()
	full := services[0]
	full.Name, full.GroupID, full.Clients, full.Last = "<web> & \u2028 저울 \"", 7, 2, full.Base
	full.Persistence = lb.Persistence{Timeout: time.Hour, Group: "g"}
	full.SlowStart, full.Transition.Window, full.Limits.Rate = time.Minute, time.Second, 9
	for name, service := range map[string]Service{"an example": services[0], "all fields": full} {
		want, err := json.Marshal(&service)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := service.Line(); err != nil || string(got) != string(want)+"\n" {
			t.Errorf("%s: %s, %v\nwant %s", name, got, err, want)
		}
		var read [1]Service
		if err := decodeLines(append(want, '\n'), read[:], 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var like Service
		if err := json.Unmarshal(want, &like); err != nil || !reflect.DeepEqual(read[0], like) {
			t.Errorf("%s: read as %+v, %v\nwant %+v", name, read[0], err, like)
		}
	}
}

// TestBackendsOfOtherVersions: backends' observed condition is in the fields in which versions up to 0.4 have it, so
// that either reads the other's snapshots.
func TestBackendsOfOtherVersions(t *testing.T) {
	const written = `{"backends":[{"name":"a","address":"198.18.0.1","port":80,"weight":1,"unhealthy":"fails",` +
		`"ejected":true,"backup":true,"standby":true,"origin":"docker"},` +
		`{"name":"b","address":"198.18.0.2","port":80,"weight":1}],"places":null,"table":{}}`
	var read [1]Service
	if err := decodeLines([]byte(written+"\n"), read[:], 0); err != nil {
		t.Fatal(err)
	}
	s := read[0].Unrouted()
	want := lb.Observations{{Unhealthy: "fails", Ejected: true, Standby: true}, {}}
	if !reflect.DeepEqual(s.Observed, want) || !s.Backends[0].Backup || s.Backends[0].NotReady != "" {
		t.Errorf("read as %+v of %+v", s.Observed, s.Backends)
	}
	s.Backends[0].NotReady = "is paused" // which Observed says, too
	text, err := json.Marshal(BackendsOf(&s))
	if err != nil {
		t.Fatal(err)
	}
	var wrote, was any
	if err := errors.Join(json.Unmarshal(fmt.Appendf(nil, `{"backends":%s,"places":null,"table":{}}`, text), &wrote),
		json.Unmarshal([]byte(written), &was)); err != nil || !reflect.DeepEqual(wrote, was) {
		t.Errorf("wrote %s, %v\nas  %s", text, err, written)
	}
}

// TestDecodeEveryEnd cuts a snapshot short everywhere.
func TestDecodeEveryEnd(t *testing.T) {
	head, services := example()
	data := encode(t, head, services)
	for end := range len(data) - 1 {
		if _, err := Decode(data[:end]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("of %d bytes, the first %d: %v", len(data), end, err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*Head, []Service)
		want  string
	}{
		"an index beyond the end": {func(_ *Head, s []Service) { s[0].Places[0].Index = 4 }, "another's or none"},
		"an index twice": {func(h *Head, s []Service) { s[0].Places[1] = s[0].Places[0] },
			"another's or none"},
		"another generation":          {func(_ *Head, s []Service) { s[0].Places[0].Generation = 2 }, "generation"},
		"a place too few":             {func(_ *Head, s []Service) { s[0].Places = s[0].Places[:1] }, "places for 1"},
		"an id beyond the end":        {func(h *Head, _ []Service) { h.IDs = 3 }, "id"},
		"a free index in use":         {func(h *Head, _ []Service) { h.Free = []uint32{2} }, "is free, and is not"},
		"a free index of an endpoint": {func(h *Head, _ []Service) { h.Free = []uint32{3} }, "is free, and is not"},
		"a free id in use":            {func(h *Head, _ []Service) { h.FreeIDs = []uint32{3} }, "is free, and is not"},
		"counters of no index":        {func(h *Head, _ []Service) { h.Carried = []Count{{Index: 9}} }, "counters"},
		"a table with one too many": {func(_ *Head, s []Service) {
			s[0].Table.Weights = append(s[0].Table.Weights, 1)
		}, "weights"},
		"an absent backend of none": {func(_ *Head, s []Service) { s[0].Table.Absent = []int{2} },
			"without backend 2"},
		"slots that do not fit": {func(_ *Head, s []Service) {
			s[0].Moved = &Slots{Size: 65, Bits: []uint64{1}}
		}, "slots"},
	} {
		head, services := example()
		test.spoil(&head, services)
		if _, err := Decode(encode(t, head, services)); !errors.Is(err, ErrDamaged) ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	head, services := example()
	of := func(version string) []byte {
		return bytes.Replace(encode(t, head, services), fmt.Appendf(nil, `"version":%d`, Version),
			[]byte(`"version":`+version), 1)
	}
	for name, data := range map[string][]byte{"a newer version": of(fmt.Sprint(Version+1, `,"more":3`)),
		"one that is too old": of(fmt.Sprint(oldest - 1))} {
		if _, err := Decode(data); !errors.Is(err, ErrVersion) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzDecode reads any bytes: they are refused, or encode to the same snapshot again.
func FuzzDecode(f *testing.F) {
	head, services := example()
	f.Add(encode(f, head, services))
	f.Add(encode(f, Head{Hook: lb.HookXDP}, nil))
	f.Add([]byte("{}\n{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Decode(data)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) {
				t.Fatal(err)
			}
			return
		}
		again, err := Decode(encode(t, s.Head, s.Services))
		if err != nil || !reflect.DeepEqual(s, again) {
			t.Fatalf("%+v became %+v: %v", s, again, err)
		}
	})
}
