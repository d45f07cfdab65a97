// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/bench/load/epoll"
)

// steadyRun is a running steady client: one thread that waits for sockets and for a time.
type steadyRun struct {
	Steady
	loop    *epoll.Loop
	address unix.Sockaddr
	family  int
	conns   map[int]*steadyConn
	open    []*steadyConn
	request []byte
	buffer  [steadyMaxAnswer]byte
	began   time.Time
	phases  []PhaseReport
	// ends are the times when the phases end, from began; never, if the end is not known yet.
	ends []time.Duration
	// phaseEnds counts the requested ends of phases that are not processed yet. The end of each phase is written to
	// out.
	phaseEnds atomic.Int32
	out       io.Writer
	// asked and made count the requests and the new connections that were due.
	asked, made int
}

// steadyConn is a connection.
type steadyConn struct {
	fd int
	// fresh means that it is a new connection, for one request.
	fresh bool
	// lost means that the connection is closed.
	lost bool
	// waiting means that a request was sent and is not answered: the first of due.
	waiting bool
	// due are the times when requests are or were due, from the beginning.
	due []time.Duration
	// answer is the received part of the answer, and length its complete length, including headers; 0 while unknown.
	answer []byte
	length int
}

// never is longer than any client runs.
const never = 24 * time.Hour

// Run sends requests until the phases are over, on the calling thread. It writes a line to out when all connections are
// open and the first phase begins. If next is not nil, each value from it ends a phase, which a line confirms.
// Otherwise a phase ends after its time.
func (s Steady) Run(ctx context.Context, out io.Writer, next <-chan os.Signal) (*SteadyReport, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	s.Timeout = cmp.Or(s.Timeout, SteadyTimeout)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := &steadyRun{Steady: s, conns: map[int]*steadyConn{}, out: out}
	r.address, r.family = epoll.Address(r.Target)
	var err error
	if r.loop, err = epoll.New(); err != nil {
		return nil, err
	}
	defer r.loop.Close()
	defer r.close()
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	if next != nil {
		defer r.listen(next)()
	}
	r.began = time.Now()
	if _, err := fmt.Fprintln(out, steadyOpen); err != nil {
		return nil, err
	}
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	r.finish()
	return &SteadyReport{Phases: r.phases}, nil
}

// listen makes signals from next end phases.
func (r *steadyRun) listen(next <-chan os.Signal) (stop func()) {
	for i := range r.ends {
		r.ends[i] = never
	}
	ended, left := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(left)
		for {
			select {
			case <-next:
				r.phaseEnds.Add(1)
				r.loop.Wake()
			case <-ended:
				return
			}
		}
	}()
	return func() {
		close(ended)
		<-left
	}
}

// endPhase ends the present phase, and confirms that.
func (r *steadyRun) endPhase() error {
	for i, end := range r.ends {
		if end == never {
			r.ends[i] = time.Since(r.began)
			_, err := fmt.Fprintln(r.out, steadyEnded)
			return err
		}
	}
	return nil
}

// prepare opens all connections, and waits until each has been answered once.
func (r *steadyRun) prepare(ctx context.Context) error {
	end := time.Duration(0)
	for _, phase := range r.Phases {
		end += phase.Time
		r.ends = append(r.ends, end)
		r.phases = append(r.phases, PhaseReport{
			Name: phase.Name, Seconds: phase.Time.Seconds(), Latency: newLatency(), NewLatency: newLatency()})
	}
	r.request = []byte("GET " + r.Path + " HTTP/1.1\r\nHost: " + r.Target.String() + "\r\n\r\n")
	for i := range r.Connections {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c, err := r.openOne()
		if err != nil {
			return fmt.Errorf("%w: number %d to %v: %w", ErrSteady, i+1, r.Target, err)
		}
		r.open = append(r.open, c)
	}
	return nil
}

// openOne opens a connection and waits for its first answer.
func (r *steadyRun) openOne() (*steadyConn, error) {
	fd, err := epoll.Socket(r.family, 0)
	if err != nil {
		return nil, err
	}
	c := &steadyConn{fd: fd}
	r.conns[fd] = c
	timeout := unix.NsecToTimeval(r.Timeout.Nanoseconds())
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
	)
	// A stop of the process ends calls on a socket with a timeout (signal(7)). Connecting continues by itself, and the
	// write waits for it.
	if err == nil {
		if err = unix.Connect(fd, r.address); errors.Is(err, unix.EINTR) {
			err = nil
		}
	}
	if err == nil {
		_, err = uninterrupted(func() (int, error) { return unix.Write(fd, r.request) })
	}
	for err == nil && (c.length == 0 || len(c.answer) < c.length) {
		var n int
		n, err = uninterrupted(func() (int, error) { return unix.Read(fd, r.buffer[:]) })
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			err = c.take(r.buffer[:n], r.FileBytes)
		}
	}
	if err != nil {
		return nil, err
	}
	c.answer = c.answer[:0]
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return c, r.loop.Add(fd, unix.EPOLLIN|unix.EPOLLRDHUP)
}

// uninterrupted makes a call again that a signal has ended.
func uninterrupted(call func() (int, error)) (n int, err error) {
	for n, err = call(); errors.Is(err, unix.EINTR); n, err = call() {
	}
	return n, err
}

// errAnswer means that an answer is not the expected one.
var errAnswer = errors.New("not the answer")

// take adds received bytes to an answer, and sets its length as soon as its headers are complete.
func (c *steadyConn) take(data []byte, fileBytes int) error {
	c.answer = append(c.answer, data...)
	if c.length == 0 {
		head, _, whole := bytes.Cut(c.answer, []byte("\r\n\r\n"))
		if !whole {
			if len(c.answer) > steadyMaxAnswer {
				return fmt.Errorf("%w: no end of its headers", errAnswer)
			}
			return nil
		}
		if !bytes.Contains(head, []byte("\r\nContent-Length: "+strconv.Itoa(fileBytes))) {
			return fmt.Errorf("%w: %.100q", errAnswer, head)
		}
		c.length = len(head) + 4 + fileBytes
	}
	if good := []byte("HTTP/1.1 200 "); len(c.answer) >= len(good) && !bytes.HasPrefix(c.answer, good) {
		return fmt.Errorf("%w: %.40q", errAnswer, c.answer)
	}
	if len(c.answer) > c.length {
		return fmt.Errorf("%w: %d bytes too much", errAnswer, len(c.answer)-c.length)
	}
	return nil
}

// run sends requests and reads answers until the phases are over and every request is answered or too late.
func (r *steadyRun) run(ctx context.Context) error {
	for {
		last := r.ends[len(r.ends)-1]
		now := time.Since(r.began)
		r.ask(min(now, last))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if now >= last && (r.idle() || now >= last+r.Timeout) {
			return nil
		}
		if err := r.loop.After(r.next(now, last) - time.Since(r.began)); err != nil {
			return err
		}
		if err := r.loop.Wait(r.handle); err != nil {
			return err
		}
		for ; r.phaseEnds.Load() > 0; r.phaseEnds.Add(-1) {
			if err := r.endPhase(); err != nil {
				return err
			}
		}
	}
}

// step returns the time between two consecutive requests, over any connections.
func (s Steady) step() time.Duration { return s.Every / time.Duration(s.Connections) }

func (r *steadyRun) requestDue(i int) time.Duration {
	return time.Duration(i/r.Connections)*r.Every + time.Duration(i%r.Connections)*r.step()
}

func (r *steadyRun) newDue(i int) time.Duration {
	return time.Duration(i) * time.Second / time.Duration(r.New)
}

// next returns when the next request or connection is due.
func (r *steadyRun) next(now, last time.Duration) time.Duration {
	switch {
	case now >= last:
		return now + 5*time.Millisecond // check again whether all is answered
	case r.New > 0:
		return min(r.requestDue(r.asked), r.newDue(r.made))
	}
	return r.requestDue(r.asked)
}

// ask sends the requests that are due by now.
func (r *steadyRun) ask(now time.Duration) {
	for due := r.requestDue(r.asked); due < now; due = r.requestDue(r.asked) {
		c := r.open[r.asked%r.Connections]
		r.asked++
		if c.lost {
			r.at(due).Unanswered++
			continue
		}
		c.due = append(c.due, due)
		if !c.waiting {
			r.send(c)
		}
	}
	for r.New > 0 && r.newDue(r.made) < now {
		due := r.newDue(r.made)
		r.made++
		r.openNew(due)
	}
}

// idle reports whether no request is outstanding.
func (r *steadyRun) idle() bool {
	for _, c := range r.conns {
		if len(c.due) > 0 {
			return false
		}
	}
	return true
}

// at returns the phase of a moment.
func (r *steadyRun) at(moment time.Duration) *PhaseReport {
	for i, end := range r.ends {
		if moment < end {
			return &r.phases[i]
		}
	}
	return &r.phases[len(r.phases)-1]
}

// send sends the first due request.
func (r *steadyRun) send(c *steadyConn) {
	c.waiting = true
	// So few bytes always fit. Otherwise the connection is broken or stuck, which shows in the missing answer.
	if _, err := unix.Write(c.fd, r.request); err != nil && !errors.Is(err, unix.EAGAIN) {
		r.lose(c, err)
	}
}

// openNew begins to open a new connection. Its request is sent when it is open.
func (r *steadyRun) openNew(due time.Duration) {
	fd, err := epoll.Socket(r.family, unix.SOCK_NONBLOCK)
	if err != nil {
		phase := r.at(due)
		phase.NotOpened++
		phase.because("new connection: %v", err)
		return
	}
	c := &steadyConn{fd: fd, fresh: true, due: []time.Duration{due}}
	r.conns[fd] = c
	err = unix.Connect(fd, r.address)
	if errors.Is(err, unix.EINPROGRESS) {
		err = r.loop.Add(fd, unix.EPOLLOUT)
	}
	if err != nil {
		r.lose(c, err)
	}
}

// handle handles the events of a connection.
func (r *steadyRun) handle(fd int, _ uint32) {
	c := r.conns[fd]
	if c == nil {
		return // it was closed by an event before this one
	}
	if c.fresh && !c.waiting {
		err := epoll.Error(fd)
		if err == nil {
			err = r.loop.Change(fd, unix.EPOLLIN|unix.EPOLLRDHUP)
		}
		if err != nil {
			r.lose(c, err)
			return
		}
		r.send(c)
		return
	}
	n, err := unix.Read(c.fd, r.buffer[:])
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
	case err != nil:
		r.lose(c, err)
	case n == 0:
		r.lose(c, io.EOF)
	case !c.waiting:
		r.lose(c, fmt.Errorf("%w: nothing was asked", errAnswer))
	default:
		if err := c.take(r.buffer[:n], r.FileBytes); err != nil {
			r.lose(c, err)
		} else if c.length > 0 && len(c.answer) == c.length {
			r.answered(c)
		}
	}
}

// answered counts an answer, and sends the next request if it had to wait for that answer.
func (r *steadyRun) answered(c *steadyConn) {
	due := c.due[0]
	phase := r.at(due)
	us := float64((time.Since(r.began) - due).Nanoseconds()) / 1e3
	into := phase.Latency
	if c.fresh {
		into = phase.NewLatency
		phase.Opened++
	} else {
		phase.Answered++
	}
	if err := into.record(us, 1); err != nil {
		phase.because("%v", err)
	}
	c.due = c.due[1:]
	c.answer, c.waiting = c.answer[:0], false
	switch {
	case c.fresh:
		r.forget(c)
	case len(c.due) > 0:
		r.send(c)
	}
}

// lose counts a broken connection and all its requests.
func (r *steadyRun) lose(c *steadyConn, why error) {
	if c.fresh {
		phase := r.at(c.due[0])
		phase.NotOpened++
		phase.because("new connection: %v", why)
		r.forget(c)
		return
	}
	phase := r.at(time.Since(r.began))
	phase.because("open connection: %v", why)
	switch {
	case errors.Is(why, io.EOF):
		phase.Closed++
	case errors.Is(why, errAnswer):
		phase.Wrong++
	default:
		phase.Reset++
	}
	for _, due := range c.due {
		r.at(due).Unanswered++
	}
	c.lost, c.due = true, nil
	r.forget(c)
}

// finish counts requests that were not answered in time, and computes the durations of the phases.
func (r *steadyRun) finish() {
	began := time.Duration(0)
	for i, end := range r.ends {
		r.phases[i].Seconds, began = (end - began).Seconds(), end
	}
	for _, c := range r.conns {
		if len(c.due) == 0 {
			continue
		}
		phase := r.at(c.due[0])
		if c.fresh {
			phase.NotOpened++
			phase.because("new connection: no answer within %v", r.Timeout)
			continue
		}
		phase.Silent++
		phase.because("open connection: no answer within %v", r.Timeout)
		for _, due := range c.due {
			r.at(due).Unanswered++
		}
	}
}

func (r *steadyRun) forget(c *steadyConn) {
	delete(r.conns, c.fd)
	unix.Close(c.fd) // which also removes it from the loop
}

func (r *steadyRun) close() {
	for _, c := range r.conns {
		unix.Close(c.fd)
	}
}

// steadyOpen is the line that a steady client writes when its connections are open. steadyEnded is the line for each
// phase that a signal ended.
const (
	steadyOpen  = "open"
	steadyEnded = "ended"
)

// SteadyOpened reports whether a steady client has written that its connections are open.
func SteadyOpened(text []byte) bool { return bytes.HasPrefix(text, []byte(steadyOpen+"\n")) }

// SteadyEnded returns the number of phases whose end a steady client has confirmed. Send one signal at a time and wait
// for its confirmation: two signals to a process that has not run in between are one (signal(7)).
func SteadyEnded(text []byte) int { return bytes.Count(text, []byte(steadyEnded+"\n")) }
