// SPDX-License-Identifier: Apache-2.0

package outliers

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// engineTest is a service under evaluation, second by second.
type engineTest struct {
	t       *testing.T
	engine  *Engine
	service Service
	began   time.Time
}

// usual are the settings of most tests.
var usual = lb.Outliers{Failures: 50, Connections: 20, Interval: 5 * time.Second, Pause: 30 * time.Second,
	LongestPause: 2 * time.Minute, Ejected: 50}

func newEngineTest(t *testing.T, protocol lb.Protocol, backends int, o lb.Outliers) *engineTest {
	r := &engineTest{t: t, engine: New(), service: Service{Outliers: o, Protocol: protocol}, began: time.Now()}
	service := lb.ServiceKey{VIP: netip.MustParseAddr("192.0.2.100"), Port: 80, Protocol: protocol}
	for i := range backends {
		r.service.Backends = append(r.service.Backends, Backend{Eligible: true,
			Key: lb.BackendKey{Service: service, Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), Port: 80}})
	}
	r.update()
	return r
}

// update calls the engine's Look; it returns the changes, as "5s: ejected 0 until 35s".
func (r *engineTest) update() (told []string) {
	now := time.Now()
	for _, c := range r.engine.Update(now, []Service{r.service}) {
		at := slices.IndexFunc(r.service.Backends, func(b Backend) bool { return b.Key == c.Key })
		line := fmt.Sprintf("%s: %s %d", now.Sub(r.began), [...]string{"ejected", "let back", "needed", "outranked",
			"spared"}[c.Kind], at)
		switch c.Kind {
		case Ejected:
			line += " until " + c.Until.Sub(r.began).String()
		case Spared:
			line += ", for " + c.Why
		}
		told = append(told, line)
	}
	return told
}

// answers are a backend's answers to ten new connections, or datagrams, within a second.
type answers struct{ tried, good, bad uint64 }

// Kinds of backends, by a second's answers.
var (
	well    = answers{10, 10, 0}
	dead    = answers{10, 0, 10}
	silent  = answers{10, 0, 0}
	poor    = answers{10, 3, 0}
	idle    = answers{}
	rejects = answers{10, 0, 1} // UDP: a host sends an ICMP error a second
)

// count adds a second's answers to a backend that takes flows.
func (r *engineTest) count(i int, a answers) {
	b := &r.service.Backends[i]
	if _, out := r.engine.Ejections()[b.Key]; out || !b.Eligible {
		return
	}
	if c := &b.Count; r.service.Protocol == lb.UDP {
		c.Packets, c.ReturnedPackets, c.Unreachable = c.Packets+a.tried, c.ReturnedPackets+a.good+a.bad,
			c.Unreachable+a.bad
	} else {
		c.Connections, c.Answered, c.Refused = c.Connections+a.tried, c.Answered+a.good, c.Refused+a.bad
	}
}

// advance lets seconds pass in which backends answer so, and returns the changes.
func (r *engineTest) advance(seconds int, of ...answers) (told []string) {
	for range seconds {
		time.Sleep(time.Second)
		for i, a := range of {
			r.count(i, a)
		}
		told = append(told, r.update()...)
	}
	return told
}

func (r *engineTest) expect(told []string, want ...string) {
	r.t.Helper()
	if diff := cmp.Diff(want, told); diff != "" {
		r.t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestEjection: answers of backends, second by second, and the ejections that follow.
func TestEjection(t *testing.T) {
	with := func(change func(*lb.Outliers)) lb.Outliers {
		o := usual
		change(&o)
		return o
	}
	for name, test := range map[string]struct {
		protocol lb.Protocol
		outliers lb.Outliers
		seconds  int
		of       []answers
		want     []string
	}{
		"all serve":      {lb.TCP, usual, 100, []answers{well, well}, nil},
		"one is dead":    {lb.TCP, usual, 30, []answers{dead, well, well}, []string{"6s: ejected 0 until 36s"}},
		"one drops":      {lb.TCP, usual, 30, []answers{well, silent}, []string{"6s: ejected 1 until 36s"}},
		"too few":        {lb.TCP, usual, 100, []answers{{3, 0, 3}, well}, nil},
		"enough":         {lb.TCP, usual, 10, []answers{{4, 0, 4}, well}, []string{"6s: ejected 0 until 36s"}},
		"less than half": {lb.TCP, usual, 100, []answers{{10, 6, 4}, well}, nil},
		"most":           {lb.TCP, usual, 10, []answers{{10, 4, 6}, well}, []string{"6s: ejected 0 until 36s"}},
		"one per cent": {lb.TCP, with(func(o *lb.Outliers) { o.Failures = 1 }), 30,
			[]answers{{100, 70, 0}, {100, 100, 0}}, []string{"6s: ejected 0 until 36s"}},
		"longer interval": {lb.TCP, with(func(o *lb.Outliers) { o.Interval = time.Minute }), 70, []answers{dead, well},
			[]string{"1m1s: ejected 0 until 1m31s"}},
		"the last": {lb.TCP, usual, 60, []answers{dead}, []string{"6s: spared 0, for no other backend serves"}},
		"all fail": {lb.TCP, usual, 60, []answers{dead, silent, poor},
			[]string{"6s: spared 0, for the others fail as well", "6s: spared 1, for the others fail as well",
				"6s: spared 2, for the others fail as well"}},
		"as many as may": {lb.TCP, usual, 20, []answers{silent, dead, dead, well, well},
			[]string{"6s: ejected 0 until 36s", "6s: ejected 1 until 36s",
				"6s: spared 2, for 2 of 5 backends are ejected already"}},
		"the worst first": {lb.TCP, usual, 20, []answers{{10, 3, 0}, {10, 1, 0}, well},
			[]string{"6s: ejected 1 until 36s", "6s: spared 0, for 1 of 3 backends are ejected already"}},
		"others are idle": {lb.TCP, usual, 10, []answers{dead, idle}, []string{"6s: ejected 0 until 36s"}},
		"one of the others is idle": {lb.TCP, usual, 10, []answers{dead, dead, idle},
			[]string{"6s: spared 0, for the others fail as well", "6s: spared 1, for the others fail as well"}},
		"answers are sent again": {lb.TCP, usual, 60, []answers{{10, 90, 0}, well}, nil},
		"UDP, all serve":         {lb.UDP, usual, 60, []answers{well, well}, nil},
		"UDP, one rejects":       {lb.UDP, usual, 10, []answers{rejects, well}, []string{"6s: ejected 0 until 36s"}},
		"UDP, one drops":         {lb.UDP, usual, 60, []answers{silent, well}, nil}, // silence may be right
		"UDP, none answers":      {lb.UDP, usual, 60, []answers{silent, silent}, nil},
		"UDP, some errors":       {lb.UDP, usual, 60, []answers{{10, 9, 1}, well}, nil},
		"UDP, all reject": {lb.UDP, usual, 30, []answers{rejects, rejects},
			[]string{"6s: spared 0, for the others fail as well", "6s: spared 1, for the others fail as well"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newEngineTest(t, test.protocol, len(test.of), test.outliers)
				r.expect(r.advance(test.seconds, test.of...), test.want...)
			})
		})
	}
}

// TestPauses: they double while the backend fails, up to the longest, and fall by a step for each
// interval that it serves well.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEngineTest(t, lb.TCP, 2, usual)
		r.expect(r.advance(466, dead, well),
			"6s: ejected 0 until 36s", "36s: let back 0", "43s: ejected 0 until 1m43s", "1m43s: let back 0",
			"1m50s: ejected 0 until 3m50s", "3m50s: let back 0", "3m57s: ejected 0 until 5m57s", "5m57s: let back 0",
			"6m4s: ejected 0 until 8m4s")
		r.expect(r.advance(30, well, well), "8m4s: let back 0")
		// Five times, and two intervals, of which the first is known a second after it.
		if saved := r.engine.Save(); len(saved) != 1 || saved[0].Times != 3 {
			t.Errorf("after two intervals: %+v", saved)
		}
		r.expect(r.advance(10, well, well))
		r.expect(r.advance(4, dead, well), "8m30s: ejected 0 until 9m30s")
	})
}

// TestBlip: a backend that is away for less than half of an interval is not ejected, and neither is one whose answers
// come late.
func TestBlip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEngineTest(t, lb.TCP, 2, usual)
		r.advance(10, well, well)
		r.expect(r.advance(2, dead, well))
		r.expect(r.advance(20, well, well))
		// Every answer comes a second late, and each second has more connections.
		last := uint64(0)
		for tried := uint64(10); tried < 1000; tried += tried / 2 {
			r.expect(r.advance(1, answers{tried, last, 0}, well))
			last = tried
		}
		u := newEngineTest(t, lb.UDP, 2, usual)
		u.advance(10, silent, silent) // a service whose clients expect no answer
		u.expect(u.advance(1, rejects, silent))
		u.expect(u.advance(20, silent, silent))
	})
}

// TestCountersBegin: counters that begin again, and those of the previous process, say nothing.
func TestCountersBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEngineTest(t, lb.TCP, 2, usual)
		r.service.Backends[0].Count = lb.BackendCount{Connections: 1000, Answered: 0, Refused: 1000}
		r = &engineTest{t: t, engine: New(), service: r.service, began: time.Now()}
		r.update() // a start with counters that were carried over
		r.expect(r.advance(20, well, well))
		// Answers are lost with the counters, and not the connections that follow.
		r.service.Backends[0].Count = lb.BackendCount{Connections: 90}
		r.expect(r.advance(20, well, well))
		r.service.Backends[0].Count = lb.BackendCount{}
		r.expect(r.advance(20, well, well))
		// A look that comes late, because the process was suspended.
		time.Sleep(time.Hour)
		r.count(0, answers{36000, 35990, 0})
		r.expect(r.advance(20, well, well))
	})
}

// TestFlood: a client that sends SYNs and never finishes a connection gets no backend ejected: each is
// answered, some of them again and again. A full backlog is not: such a backend fails its clients.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEngineTest(t, lb.TCP, 2, usual)
		r.expect(r.advance(60, answers{100000, 300000, 0}, well))
		r.expect(r.advance(7, answers{100000, 256, 0}, well), "1m6s: ejected 0 until 1m36s")
	})
}

// TestOutranked: a backend that operations or checks keep from new flows is not ejected besides, and one that is needed
// is readmitted.
func TestOutranked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEngineTest(t, lb.TCP, 3, usual)
		r.expect(r.advance(6, dead, well, well), "6s: ejected 0 until 36s")
		r.service.Backends[0].Eligible = false
		r.expect(r.advance(1, dead, well, well), "7s: outranked 0")
		r.expect(r.advance(10, idle, dead, well), "11s: ejected 1 until 41s")
		r.service.Backends[2].Eligible = false
		r.expect(r.advance(1, idle, idle, idle), "18s: needed 1")
		r.expect(r.advance(60, idle, dead, idle), "25s: spared 1, for no other backend serves")
		r.service.Backends[2].Eligible = true
		r.expect(r.advance(1, idle, dead, well), "1m19s: ejected 1 until 2m19s")
		if !r.engine.Return(r.service.Backends[1].Key, time.Now()) || len(r.engine.Ejections()) != 0 {
			t.Error("an operation did not let it back")
		}
		if r.engine.Return(r.service.Backends[1].Key, time.Now()) {
			t.Error("what is not ejected was let back")
		}
		r.engine.Update(time.Now(), nil)
		if saved := r.engine.Save(); len(saved) != 0 {
			t.Errorf("of a service that is gone there is left %+v", saved)
		}
	})
}

// TestRestore: the next process goes on, whatever clock it finds.
func TestRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEngineTest(t, lb.TCP, 3, usual)
		r.advance(6, dead, well, well)
		r.advance(10, dead, well, well)
		saved := r.engine.Save()
		if len(saved) != 1 || saved[0].Times != 1 ||
			!strings.Contains(saved[0].Reason, "has answered 0 of 50 new connections in 5s, and refused 50") {
			t.Errorf("saved %+v", saved)
		}
		next := &engineTest{t: t, engine: New(), service: r.service, began: r.began}
		next.engine.Restore(saved, time.Now())
		next.update()
		next.expect(next.advance(60, dead, well, well), "36s: let back 0", "43s: ejected 0 until 1m43s")
		// Of an hour ahead.
		saved[0].Until = time.Now().Add(time.Hour)
		last := &engineTest{t: t, engine: New(), service: r.service, began: time.Now()}
		last.engine.Restore(saved, time.Now())
		last.expect(last.advance(130, well, well, well), "2m1s: let back 0")
	})
}
