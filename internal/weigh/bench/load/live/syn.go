// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// When a connection that is being opened is looked at. Linux sends a SYN again a second
// after the first (TCP_TIMEOUT_INIT; RFC 6298 section 2.1), so most are never looked at.
const (
	firstPoll    = 900 * time.Millisecond
	pollInterval = 10 * time.Millisecond
)

// synWatch tells which SYNs of a connection were lost: those after which the kernel sent
// another. It reads that from the socket (TCP_INFO), and the times of the SYNs from when
// it did.
type synWatch struct {
	mu  sync.Mutex
	raw syscall.RawConn
	// sent is when the last SYN was sent, to within pollInterval before; looked when the
	// socket was looked at last.
	sent, looked time.Time
	again        uint32
	lost         []time.Time
	timer        *time.Timer
	over         bool
}

// watch begins to look at a socket that is about to send its SYN.
func (w *synWatch) watch(raw syscall.RawConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.raw, w.sent = raw, time.Now()
	w.looked = w.sent
	w.timer = time.AfterFunc(firstPoll, w.tick)
}

func (w *synWatch) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	w.look()
	w.timer.Reset(pollInterval)
}

// look reads how often the SYN has been sent again. The caller has the lock.
func (w *synWatch) look() {
	var info *unix.TCPInfo
	var read error
	err := w.raw.Control(func(fd uintptr) { info, read = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO) })
	if errors.Join(err, read) != nil {
		return
	}
	w.note(info.Total_retrans, time.Now())
}

// note notes that the SYN has been sent again so often by now. Where it was several times
// since the last look, the times between are not known, and the earliest are taken.
func (w *synWatch) note(again uint32, now time.Time) {
	for ; w.again < again; w.again++ {
		w.lost = append(w.lost, w.sent)
		w.sent = w.looked
	}
	w.looked = now
}

// end returns when the SYNs were sent that were lost; err is the error of the connection. It is asked before anything
// is sent over it, because that may be sent again too.
func (w *synWatch) end(err error) []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.raw == nil {
		return nil // it never got so far
	}
	w.timer.Stop()
	if err == nil {
		w.look()
	} else if causeOf(err) == Silent {
		w.lost = append(w.lost, w.sent)
	}
	return w.lost
}

// dialFrom opens a connection from a local port, and says when the SYNs were sent that
// were lost on the way, or their answers.
func (h *holder) dialFrom(port int) (net.Conn, []time.Time, error) {
	watch := &synWatch{}
	dialer := h.dialer
	dialer.LocalAddr = &net.TCPAddr{Port: port}
	dialer.Control = func(_, _ string, raw syscall.RawConn) error {
		err := reusable(raw)
		watch.watch(raw)
		return err
	}
	conn, err := dialer.DialContext(h.ctx, "tcp4", h.load.Target.String())
	return conn, watch.end(err), err
}

// reusable lets a socket have a port that one before it had.
func reusable(raw syscall.RawConn) error {
	var set error
	err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	})
	return errors.Join(err, set)
}
