// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestReadDuringApply holds a change in its middle: readers answer meanwhile, with the data plane in use, and with the
// change once it was made.
func TestReadDuringApply(t *testing.T) {
	testenv.Root(t)
	one := lb.State{Services: []lb.RoutedService{testService(vip4, 80, lb.TCP, lb.Maglev, 2)}}
	two := lb.State{Services: append(one.Services, testService(vip4, 81, lb.TCP, lb.RoundRobin, 3))}
	d := NewDetached(testOptions(lb.HookXDP), balancerMAC)
	t.Cleanup(func() { d.Close() })
	if err := d.Apply(one); err != nil {
		t.Fatal(err)
	}
	before := d.Memory()
	find, held, release := d.findPorts, make(chan struct{}), make(chan struct{})
	d.findPorts = func(names []string) ([]attach.Port, error) {
		close(held)
		<-release
		return find(names)
	}
	applied := make(chan error, 1)
	go func() { applied <- d.Apply(two) }()
	<-held
	read := make(chan int, 1)
	go func() {
		counters, err := d.Counters()
		if err != nil || len(d.Attachments()) != 1 || d.Memory() != before {
			t.Errorf("during a change: %v, %v, %v", err, d.Attachments(), d.Memory())
		}
		read <- len(counters.Backends)
	}()
	select {
	case n := <-read:
		if n != 2 {
			t.Errorf("%d backends are counted during the change, want the 2 of before", n)
		}
	case <-time.After(testenv.WaitLimit):
		t.Error("to read waits for the change")
	}
	close(release)
	if err := <-applied; err != nil {
		t.Fatal(err)
	}
	if counters, err := d.Counters(); err != nil || len(counters.Backends) != 5 || len(counters.Services) != 2 {
		t.Errorf("after the change %d backends and %d services are counted: %v", len(counters.Backends),
			len(counters.Services), err)
	}
}

// TestReadWhileMapsGrow reads all the while that changes replace the maps that are read.
func TestReadWhileMapsGrow(t *testing.T) {
	testenv.Root(t)
	options := testOptions(lb.HookXDP)
	options.TableSize = 8191
	d := NewDetached(options, balancerMAC)
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := d.Counters(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for n := 1; n <= 4; n++ {
		if err := d.Apply(lb.State{Services: []lb.RoutedService{testService(vip4, 80, lb.TCP, lb.Maglev,
			n*generation.IndexSlack)}}); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	readers.Wait()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Counters(); !errors.Is(err, ErrClosed) {
		t.Errorf("counters after Close: %v, want %v", err, ErrClosed)
	}
}
