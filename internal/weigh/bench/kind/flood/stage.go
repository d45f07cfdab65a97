// SPDX-License-Identifier: Apache-2.0

package flood

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/flood"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// syncookies is the setting for answering SYNs without storing them: "1" when too many connections are half-open, "2"
// always (ip-sysctl.rst).
const syncookies = "net.ipv4.tcp_syncookies"

// floodStage is a laboratory that is set up for a flood, and the flood.
type floodStage struct {
	lab   *lab.Lab
	flood *flood.Flood
	undo  []func() error
	// end ends the running flood, and ended receives its error.
	end   context.CancelFunc
	ended chan error
	once  sync.Once
}

// newFloodStage sets everything up. The caller must close the stage, even after an error.
func newFloodStage(t bench.Trial, l *lab.Lab) (*floodStage, error) {
	s := &floodStage{lab: l}
	for _, ready := range []func(bench.Trial) error{s.route, s.load, s.tap, s.pin} {
		if err := ready(t); err != nil {
			return s, err
		}
	}
	return s, nil
}

// on makes a change, and notes how to undo it.
func (s *floodStage) on(do func(on bool) error) error {
	s.undo = append(s.undo, func() error { return do(false) })
	return do(true)
}

// route routes packets to the flood's sources through the attacker. On servers, it routes them through the balancer if
// the balancer sees the answers to its clients.
func (s *floodStage) route(bench.Trial) error {
	for _, host := range append([]*lab.Host{s.lab.Balancer}, s.lab.Servers...) {
		through := s.lab.Attacker
		next, err := host.NextHop(s.lab.Clients[0].IPv4)
		if err != nil {
			return err
		}
		if host != s.lab.Balancer && next == s.lab.Balancer.IPv4 {
			through = s.lab.Balancer
		}
		if err := s.on(func(on bool) error { return host.RouteThrough(through, floodSources, on) }); err != nil {
			return err
		}
	}
	for _, server := range s.lab.Servers {
		err := s.on(func(on bool) error {
			value := "1"
			if on {
				value = "2"
			}
			return server.Set(syncookies, value)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// floodMostPerSecond is more than a core can send. With the time, it bounds the number of a flood's packets.
const floodMostPerSecond = 20_000_000

// load loads the flood. Without a balancer, the flood goes to the servers themselves.
func (s *floodStage) load(t bench.Trial) (err error) {
	attacker := s.lab.Attacker
	device, _, err := attacker.Indexes()
	if err != nil {
		return err
	}
	targets := []*lab.Host{s.lab.Balancer}
	direct := t.Subject.Name() == "direct"
	if direct {
		targets = s.lab.Servers
	}
	drop := settingsOf(t.By).beyond() == beyondDrop
	options := flood.Options{
		Packets: settingsOf(t.By).Packets, Sources: floodSources, Target: floodTarget(s.lab), From: attacker.MAC,
		Interface: device,
		Rate:      settingsOf(t.By).Rate, Limit: uint64(floodMostPerSecond * floodTime(t.Duration).Seconds()),
		Seed:       uint64(t.Repeat),
		DropAtPort: direct && drop, DropAtExit: drop,
	}
	for _, host := range targets {
		options.To = append(options.To, host.MAC)
	}
	if s.flood, err = flood.New(options); err != nil {
		return err
	}
	for _, host := range targets {
		_, port, err := host.Indexes()
		if err == nil {
			err = s.flood.Connect(host.MAC, port)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tap attaches the flood's taps.
func (s *floodStage) tap(bench.Trial) error {
	taps := s.flood.Taps()
	attacker, balancer := s.lab.Attacker, s.lab.Balancer
	return errors.Join(
		attacker.TapDevice(taps.Sink), attacker.TapPort(taps.Port), balancer.TapPort(taps.Exit),
		s.on(func(on bool) error {
			if on {
				return nil
			}
			return errors.Join(attacker.TapDevice(nil), attacker.TapPort(nil), balancer.TapPort(nil))
		}),
	)
}

// pin pins the programs that serve the connections to the last core.
func (s *floodStage) pin(bench.Trial) error {
	for _, host := range append([]*lab.Host{s.lab.Balancer}, s.lab.Servers...) {
		err := s.on(func(on bool) error {
			if on {
				return errors.Join(host.Pin(bench.LastCPU()), host.Renice(bench.FirstNice))
			}
			return errors.Join(host.Pin(), host.Renice(0))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// start begins the flood. It ends by itself after at most the given time.
func (s *floodStage) start(ctx context.Context, most time.Duration) {
	ctx, s.end = context.WithTimeout(ctx, most)
	s.ended = make(chan error, 1)
	go func() {
		s.ended <- s.lab.Attacker.Do(func() error {
			// Only for this thread, which ends with the flood.
			if err := unix.Setpriority(unix.PRIO_PROCESS, 0, bench.FirstNice); err != nil {
				return fmt.Errorf("giving the flood the CPU first: %w", err)
			}
			// The last core, which is another one, has everything else.
			return s.flood.Run(ctx, bench.FirstCPU())
		})
	}()
}

// stop ends the flood and waits until it is over.
func (s *floodStage) stop() (err error) {
	if s.end == nil {
		return nil
	}
	s.once.Do(func() {
		s.end()
		err = <-s.ended
	})
	return err
}

// close ends the flood and undoes all changes. Parts that ended with the laboratory need no undoing.
func (s *floodStage) close() error {
	errs := []error{s.stop()}
	for _, back := range slices.Backward(s.undo) {
		if err := back(); !errors.Is(err, lab.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if s.flood != nil {
		errs = append(errs, s.flood.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("taking back what a flood needed: %w", err)
	}
	return nil
}

// floodTrial is a trial while its subject runs.
type floodTrial struct {
	runner  *bench.Runner
	trial   bench.Trial
	running subject.Running
	stage   *floodStage
	client  *steadyClient
	// quiet and flooded are the readings before and after each of the two phases.
	quiet, flooded [2]floodReading
	// remembered is the state that the subject stored: before the flood, during it, and at the end.
	remembered [3]subject.Remembered
}

// floodReading is a reading of the laboratory at one moment.
type floodReading struct {
	at     time.Time
	cpu    time.Duration // the balancer's
	idle   float64       // of the core of the connections, in seconds
	counts flood.Counts
}

// steadyClient is the process of the client.
type steadyClient struct {
	process        *lab.Process
	mu             sync.Mutex
	stdout, stderr bytes.Buffer
}

// output collects one stream of a process under the lock of its client.
type output struct {
	client *steadyClient
	into   *bytes.Buffer
}
