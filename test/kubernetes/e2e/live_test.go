// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/test/kubernetes/podserver"
)

// live is connections that are held open, and asked in turn.
type live struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	asked   atomic.Int64

	mu     sync.Mutex
	broken []breakage
	pods   map[string]int
}

// breakage is a connection that broke.
type breakage struct {
	pod string
	at  time.Time
	err error
}

// turn is the rest of a connection between two requests, where a test asks for no other.
const turn = 100 * time.Millisecond

// hold opens n connections from a host, and asks over each again and again until end.
func hold(t *testing.T, host *lab.Host, vip netip.AddrPort, n int) *live {
	t.Helper()
	return holdAt(t, host, vip, n, turn)
}

// holdAt is hold with another rest between two requests of a connection.
func holdAt(t *testing.T, host *lab.Host, vip netip.AddrPort, n int, turn time.Duration) *live {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &live{cancel: cancel, pods: map[string]int{}}
	t.Cleanup(func() { l.end() })
	var connections []net.Conn
	err := host.Do(func() error {
		for range n {
			connection, err := net.DialTimeout("tcp", vip.String(), askTimeout)
			if err != nil {
				return err
			}
			connections = append(connections, connection)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, connection := range connections {
		l.running.Go(func() { l.ask(ctx, connection, turn) })
	}
	return l
}

func (l *live) ask(ctx context.Context, connection net.Conn, turn time.Duration) {
	defer connection.Close()
	defer context.AfterFunc(ctx, func() { connection.Close() })() // one that waits for a dead peer ends, too
	reader, pod := bufio.NewReader(connection), ""
	tick := time.NewTicker(turn)
	defer tick.Stop()
	for {
		connection.SetDeadline(time.Now().Add(waitTimeout))
		answer, err := request("tcp", connection, reader, "keep-alive")
		if err == nil && pod != "" && answer.Pod != pod {
			err = fmt.Errorf("%s answers in the place of %s", answer.Pod, pod)
		}
		if ctx.Err() != nil {
			return
		}
		l.note(&pod, answer, err)
		if err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (l *live) note(pod *string, answer podserver.Answer, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.broken = append(l.broken, breakage{*pod, time.Now(), err})
		return
	}
	if *pod == "" {
		*pod = answer.Pod
		l.pods[answer.Pod]++
	}
	l.asked.Add(1)
}

func (l *live) countBroken() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.broken)
}

// end closes the connections, and returns those that had broken.
func (l *live) end() []breakage {
	l.cancel()
	l.running.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// fresh is new connections, one after another, for as long as it runs.
type fresh struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	*tally
	opened atomic.Int64
	// lastLost is when the last connection began whose first SYN got no answer: it failed, or took as long as TCP
	// waits before it sends another (1 s: RFC 6298 section 2.1). Under the lock of tally.
	lastLost time.Time
}

// initialRTO is a little less than the time after which a SYN without an answer is sent again.
const initialRTO = 900 * time.Millisecond

// open connects from a host so many times a second until end.
func open(t *testing.T, host *lab.Host, vip netip.AddrPort, perSecond int) *fresh {
	t.Helper()
	const workers = 10
	ctx, cancel := context.WithCancel(context.Background())
	f := &fresh{cancel: cancel, tally: newTally()}
	t.Cleanup(func() { f.end() })
	for range workers {
		f.running.Go(func() {
			err := host.Do(func() error {
				tick := time.NewTicker(workers * time.Second / time.Duration(perSecond))
				defer tick.Stop()
				for {
					select {
					case <-tick.C:
					case <-ctx.Done():
						return nil
					}
					began := time.Now()
					answer, err := ask("tcp", vip, askTimeout)
					f.add(answer, err)
					f.noteLost(began, err)
					f.opened.Add(1)
				}
			})
			if err != nil {
				f.add(podserver.Answer{}, err)
			}
		})
	}
	return f
}

func (f *fresh) noteLost(began time.Time, err error) {
	if err == nil && time.Since(began) < initialRTO {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if began.After(f.lastLost) {
		f.lastLost = began
	}
}

// end stops, and returns the failures.
func (f *fresh) end() []error {
	f.cancel()
	f.running.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// progress waits until so many further connections have been made.
func (f *fresh) progress(t *testing.T, n int64) {
	t.Helper()
	from := f.opened.Load()
	(&scope{t: t}).eventually(fmt.Sprintf("%d further connections", n), func() bool {
		return f.opened.Load() >= from+n
	})
}
