// SPDX-License-Identifier: Apache-2.0

package paced

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/epoll"
)

// Errors of a request.
var (
	errSilent = fmt.Errorf("no answer within %v of when it was due", timeout)
	errGaveUp = errors.New("not asked for any more, for the bound could not be kept")
)

// client is a running client: a single thread, which handles the events of sockets and sends requests when they are
// due.
type client struct {
	Options
	loop    *epoll.Loop
	address unix.Sockaddr
	family  int
	request []byte
	report  *Report
	began   time.Time
	// next is the first request without a connection.
	next int
	// waiting is the first request that was not yet counted as waiting.
	waiting int
	// conns has the connections by descriptor; closed ones are nil. open is the number of open ones.
	conns []*conn
	open  int
	// idle are kept connections without a request.
	idle []*conn
	// late counts the answers that took longer than the bound.
	late   int
	buffer [64 << 10]byte
}

// conn is a connection, and the request that it carries.
type conn struct {
	fd int
	// connected means that the connection is open. asked means that it carries a request, which was due at due.
	connected, asked bool
	due              time.Duration
	answer           answer
	// last is the time of the connection's last event.
	last time.Duration
}

// Run sends requests on the calling thread until all due requests are answered.
func (o Options) Run(ctx context.Context) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	defer epoll.Undisturbed()()
	c := &client{Options: o, report: &Report{Latency: load.NewLatency(), Due: uint64(o.total())}}
	c.address, c.family = epoll.Address(o.Target)
	end := "Connection: close\r\n\r\n"
	if o.Keep {
		end = "\r\n"
	}
	c.request = []byte("GET " + o.Path + " HTTP/1.1\r\nHost: " + o.Target.String() + "\r\n" + end)
	var err error
	if c.loop, err = epoll.New(); err != nil {
		return nil, err
	}
	defer c.loop.Close()
	defer c.loop.WakeAtEnd(ctx)()
	defer c.close()
	c.began = time.Now()
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	return c.report, nil
}

// checkInterval is the interval of checks for connections without an answer.
const checkInterval = 50 * time.Millisecond

func (c *client) run(ctx context.Context) error {
	looked := time.Duration(0)
	for {
		now := time.Since(c.began)
		c.ask(now)
		if now-looked >= checkInterval {
			looked = now
			if c.cannotMeetBound(now) {
				c.giveUp()
				return nil
			}
			c.loseSilent(now)
		}
		if c.done() {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		wait := checkInterval
		if c.next < c.total() && c.free() {
			wait = min(wait, c.due(c.next)-time.Since(c.began))
		}
		if err := c.loop.After(wait); err != nil {
			return err
		}
		if err := c.loop.Wait(c.handle); err != nil {
			return err
		}
	}
}

// done reports whether every request has been answered or has failed.
func (c *client) done() bool { return c.report.Answered+c.report.Failed == c.report.Due }

// free reports whether a request that is due could be sent.
func (c *client) free() bool { return len(c.idle) > 0 || c.open < c.Connections }

// ask sends the requests that are due.
func (c *client) ask(now time.Duration) {
	for c.next < c.total() {
		due := c.due(c.next)
		if due > now {
			return
		}
		if now-due > timeout {
			// All connections are in use by requests that are no faster.
			c.next++
			c.report.Fail(errSilent)
			continue
		}
		if !c.free() {
			from := max(c.waiting, c.next)
			c.waiting = max(c.dueBy(now), from)
			c.report.Waited += uint64(c.waiting - from)
			return
		}
		c.next++
		if last := len(c.idle) - 1; last >= 0 {
			one := c.idle[last]
			c.idle = c.idle[:last]
			c.give(one, due, now)
			c.send(one)
			continue
		}
		c.connect(due, now)
	}
}

// give assigns the request that was due at due to a connection.
func (c *client) give(one *conn, due, now time.Duration) {
	one.asked, one.due, one.last = true, due, now
	one.answer.reset()
}

// connect opens a connection for a request.
func (c *client) connect(due, now time.Duration) {
	fd, err := epoll.Socket(c.family, unix.SOCK_NONBLOCK)
	if err != nil {
		c.report.Fail(err)
		return
	}
	one := &conn{fd: fd}
	if fd >= len(c.conns) {
		c.conns = append(c.conns, make([]*conn, fd+1-len(c.conns))...)
	}
	c.conns[fd] = one
	c.open++
	c.give(one, due, now)
	err = unix.Connect(fd, c.address)
	if err == nil || errors.Is(err, unix.EINPROGRESS) {
		err = c.loop.Add(fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP|unix.EPOLLET)
	}
	if err != nil {
		c.lose(one, err)
	}
}

// handle handles the events of a connection. Each change is reported once (EPOLLET), so handle must process everything
// that follows from it.
func (c *client) handle(fd int, events uint32) {
	one := c.conns[fd]
	if one == nil {
		return // it was closed by an event before this one
	}
	if !one.connected {
		open, err := epoll.Opened(fd, events)
		if err != nil {
			c.lose(one, err)
		}
		if !open {
			return
		}
		one.connected = true
		c.send(one)
	}
	if events&^unix.EPOLLOUT != 0 {
		c.read(one)
	}
}

// send sends the request of a connection. So few bytes always fit. Otherwise the connection is broken or stuck, which
// shows in the missing answer.
func (c *client) send(one *conn) {
	if _, err := unix.Write(one.fd, c.request); err != nil && !errors.Is(err, unix.EAGAIN) {
		c.lose(one, err)
	}
}

func (c *client) read(one *conn) {
	for c.conns[one.fd] == one {
		n, err := unix.Read(one.fd, c.buffer[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return
		case err != nil:
			c.lose(one, err)
		case n == 0 && one.asked:
			c.lose(one, epoll.ErrEarly)
		case n == 0:
			c.forget(one)
		default:
			err := one.answer.take(c.buffer[:n], c.FileBytes)
			if err != nil {
				c.lose(one, err)
			} else if one.answer.whole {
				c.answered(one)
			}
		}
	}
}

// answered counts an answer. A kept connection takes the next request; another one waits for the server to close it.
func (c *client) answered(one *conn) {
	now := time.Since(c.began)
	took := now - one.due
	// At most some seconds, so the value is in range.
	if err := c.report.Latency.Record(float64(took.Nanoseconds())/1e3, 1); err != nil {
		c.report.Fail(err)
	} else {
		c.report.Answered++
	}
	if c.Bound > 0 && took > c.Bound {
		c.late++
	}
	c.report.Seconds = now.Seconds()
	one.asked, one.last = false, now
	if c.Keep && !one.answer.closes {
		c.idle = append(c.idle, one)
		c.ask(now)
	}
}

// lose counts a broken connection and its request.
func (c *client) lose(one *conn, why error) {
	if one.asked {
		c.report.Fail(why)
	}
	c.forget(one)
}

func (c *client) forget(one *conn) {
	c.conns[one.fd] = nil
	c.open--
	for i, other := range c.idle {
		if other == one {
			c.idle = append(c.idle[:i], c.idle[i+1:]...)
			break
		}
	}
	unix.Close(one.fd) // which also removes it from the loop
}

// loseSilent loses connections that were not answered in time, or not closed in time.
func (c *client) loseSilent(now time.Duration) {
	for _, one := range c.conns {
		switch {
		case one == nil:
		case one.asked && now-one.due > timeout:
			c.lose(one, errSilent)
		case !one.asked && now-one.last > timeout && !(c.Keep && !one.answer.closes):
			c.lose(one, errSilent)
		}
	}
}

// cannotMeetBound reports whether more requests have missed the bound than may miss it.
func (c *client) cannotMeetBound(now time.Duration) bool {
	if c.Bound == 0 {
		return false
	}
	// At most this many of the requests that were due earlier than the bound have been answered.
	behind := c.dueBy(now-c.Bound) - int(c.report.Answered) - int(c.report.Failed)
	return float64(c.late+int(c.report.Failed)+max(behind, 0)) > maxLate*float64(c.total())
}

func (c *client) giveUp() {
	c.report.GaveUp = true
	for !c.done() {
		c.report.Fail(errGaveUp)
	}
	c.report.Seconds = time.Since(c.began).Seconds()
}

func (c *client) close() {
	for _, one := range c.conns {
		if one != nil {
			unix.Close(one.fd)
		}
	}
}
