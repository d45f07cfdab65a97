// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/packet"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Addresses of services, backends and clients. Each service has its own address.
var (
	firstVIP     = netip.MustParseAddr("198.18.0.0")
	firstBackend = netip.MustParseAddr("10.0.0.0")
	firstClient  = netip.MustParseAddr("198.19.0.0")
)

const port = 80

// vip returns the address of service i, backend that of its backend j.
func (s shape) vip(i int) netip.Addr        { return plus(firstVIP, i) }
func (s shape) backend(i, j int) netip.Addr { return plus(firstBackend, i*s.backends+j) }

// plus returns the n-th IPv4 address after first.
func plus(first netip.Addr, n int) netip.Addr {
	word := first.As4()
	binary.BigEndian.PutUint32(word[:], binary.BigEndian.Uint32(word[:])+uint32(n))
	return netip.AddrFrom4(word)
}

// yaml returns the configuration as users write it, without keys that can be omitted.
func (s shape) yaml() []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, "interface: eth0\nservices:")
	for i := range s.services {
		fmt.Fprintf(&b, "  - name: service-%05d\n    vip: %s\n    port: %d\n    mode: l2dsr\n    backends:\n", i,
			s.vip(i), port)
		for j := range s.backends {
			fmt.Fprintf(&b, "      - {name: web-%05d, address: %s}\n", j, s.backend(i, j))
		}
	}
	return b.Bytes()
}

// parse reads the configuration from a file, and returns how long that took.
func (s shape) parse() (*config.Config, time.Duration, error) {
	dir, err := os.MkdirTemp("", "jeoul-scale-")
	if err != nil {
		return nil, 0, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "jeoul.yaml")
	if err := os.WriteFile(path, s.yaml(), 0o600); err != nil {
		return nil, 0, err
	}
	begun := time.Now()
	cfg, err := config.Load(path)
	return cfg, time.Since(begun), err
}

// state returns the data plane's state for a configuration with all backends up.
func (s shape) state(cfg *config.Config) lb.State {
	var state lb.State
	for i, service := range cfg.Services {
		made := lb.RoutedService{Service: service, Paths: make([]lb.Path, len(service.Backends))}
		for j, backend := range service.Backends {
			made.Paths[j] = harness.PathTo(backend.Address, s.number(i, j))
		}
		state.Services = append(state.Services, made)
	}
	return state
}

// number returns the number of a backend among all backends. Frames to the backend contain it.
func (s shape) number(i, j int) uint32 { return uint32(i*s.backends + j) }

// loads measures the time from a file to forwarded packets.
func (b *bench) loads(ctx context.Context, s shape) error {
	for round := range b.Rounds {
		if err := ctx.Err(); err != nil {
			return err
		}
		b.Progress(fmt.Sprintf("%v: loading, %d of %d", s, round+1, b.Rounds))
		cfg, parsing, err := s.parse()
		if err != nil {
			return err
		}
		loaded, loading, err := b.load(s, cfg)
		if err != nil {
			return err
		}
		memory, err := harness.Memlock(loaded.Program())
		if err := errors.Join(err, loaded.Close()); err != nil {
			return err
		}
		b.add(s, "load", round+1, map[string]float64{
			results.ParseSeconds: parsing.Seconds(), results.LoadSeconds: loading.Seconds(),
			results.MemlockBytes: float64(memory.Total()),
		})
	}
	return nil
}

// load creates a balancer with a configuration, and returns how long it took until a packet for the last service was
// forwarded.
func (b *bench) load(s shape, cfg *config.Config) (*datapath.Datapath, time.Duration, error) {
	begun := time.Now()
	balancer := harness.NewBalancer(b.Hook, harness.Room{})
	err := balancer.Apply(s.state(cfg))
	if err == nil {
		_, err = s.ask(balancer, s.services-1, client(0))
	}
	took := time.Since(begun)
	if err != nil {
		return nil, 0, errors.Join(err, balancer.Close())
	}
	return balancer, took, nil
}

// client returns the address and port of the n-th client.
func client(n uint32) netip.AddrPort {
	return netip.AddrPortFrom(plus(firstClient, int(n&0xffff)), uint16(1024+n>>16))
}

// errNotForwarded means that a packet reached no backend.
var errNotForwarded = errors.New("a packet for a service was not sent on")

// ask sends a SYN to service i, and returns the number of the backend that it reaches.
func (s shape) ask(balancer *datapath.Datapath, i int, from netip.AddrPort) (uint32, error) {
	frame := harness.NewFrame(from, netip.AddrPortFrom(s.vip(i), port), lb.TCP, packet.FlagSYN)
	to, err := harness.One(balancer.Program(), frame)
	if err != nil {
		return 0, err
	}
	if to == harness.Unsent {
		return 0, fmt.Errorf("%w: service %d", errNotForwarded, i)
	}
	return to, nil
}
