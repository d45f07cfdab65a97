// SPDX-License-Identifier: Apache-2.0

package transact

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/epoll"
)

// Errors of a transaction.
var (
	errSilent = fmt.Errorf("no answer within %v", timeout)
	errMore   = errors.New("more than the answer came")
)

// Run makes transactions on the calling thread until the time is over, and waits for outstanding ones.
func (o Options) Run(ctx context.Context) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	defer epoll.Undisturbed()()
	if o.Connections == 1 {
		return o.runOne(ctx)
	}
	return o.runMany(ctx)
}

// singleStream is a client with a single stream: it makes one blocking call after another.
type singleStream struct {
	Options
	address unix.Sockaddr
	family  int
	buffer  [1]byte
}

func (o Options) runOne(ctx context.Context) (*Report, error) {
	c := &singleStream{Options: o}
	c.address, c.family = epoll.Address(o.Target)
	transact := c.connectRequestResponse
	if o.Test == RR {
		fd, err := c.connect()
		if err != nil {
			return nil, fmt.Errorf("connecting to %v: %w", o.Target, err)
		}
		defer unix.Close(fd)
		transact = func() error { return c.ask(fd) }
	}
	report := &Report{Latency: load.NewLatency()}
	began := time.Now()
	for at := began; at.Sub(began) < o.Duration; {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		err := transact()
		now := time.Now()
		switch {
		case err == nil:
			report.ended(now.Sub(at))
		case o.Test == RR:
			report.Fail(err)
			report.Seconds = now.Sub(began).Seconds()
			return report, nil // the one connection is gone
		default:
			report.Fail(err)
		}
		at = now
	}
	report.Seconds = time.Since(began).Seconds()
	return report, nil
}

func (c *singleStream) connectRequestResponse() error {
	fd, err := c.connect()
	if err != nil {
		return err
	}
	defer epoll.Close(fd)
	if err := c.ask(fd); err != nil {
		return err
	}
	n, err := c.read(fd)
	if err == nil && n != 0 {
		err = errMore
	}
	return err
}

func (c *singleStream) connect() (int, error) {
	fd, err := epoll.Socket(c.family, 0)
	if err != nil {
		return -1, err
	}
	limit := unix.NsecToTimeval(timeout.Nanoseconds())
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit),
	)
	if err == nil {
		err = unix.Connect(fd, c.address)
	}
	if errors.Is(err, unix.EINTR) {
		// Connecting continues by itself, and the write waits for it.
		err = nil
	}
	if err != nil {
		unix.Close(fd)
		return -1, silent(err)
	}
	return fd, nil
}

// ask sends a byte and waits for the answer.
func (c *singleStream) ask(fd int) error {
	for {
		_, err := epoll.Send(fd, c.buffer[:])
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return silent(err)
		}
	}
	n, err := c.read(fd)
	if err == nil && n == 0 {
		err = epoll.ErrEarly
	}
	return err
}

func (c *singleStream) read(fd int) (int, error) {
	for {
		n, err := epoll.Receive(fd, c.buffer[:], 0)
		if !errors.Is(err, unix.EINTR) {
			return n, silent(err)
		}
	}
}

// silent returns errSilent for the error of a socket's timeout.
func silent(err error) error {
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINPROGRESS) {
		return errSilent
	}
	return err
}
