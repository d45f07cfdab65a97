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

// Times of the polls of a connection that is being opened. Linux retransmits a SYN a second after the first
// (TCP_TIMEOUT_INIT; RFC 6298 section 2.1), so most connections are never polled.
const (
	firstPoll    = 900 * time.Millisecond
	pollInterval = 10 * time.Millisecond
)

// synWatch records which SYNs of a connection were lost: those after which the kernel sent another. It reads the number
// of retransmissions from the socket (TCP_INFO), and derives the times of the SYNs from the times of these reads.
type synWatch struct {
	mu  sync.Mutex
	raw syscall.RawConn
	// sent is when the last SYN was sent, or up to pollInterval before that; looked is when the socket was last read.
	sent, polledAt time.Time
	retransmits    uint32
	lost           []time.Time
	timer          *time.Timer
	over           bool
}

// watch begins to poll a socket that is about to send its SYN.
func (w *synWatch) watch(raw syscall.RawConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.raw, w.sent = raw, time.Now()
	w.polledAt = w.sent
	w.timer = time.AfterFunc(firstPoll, w.tick)
}

func (w *synWatch) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	w.readRetransmits()
	w.timer.Reset(pollInterval)
}

// readRetransmits reads how often the SYN has been retransmitted. The caller holds the lock.
func (w *synWatch) readRetransmits() {
	var info *unix.TCPInfo
	var read error
	err := w.raw.Control(func(fd uintptr) { info, read = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO) })
	if errors.Join(err, read) != nil {
		return
	}
	w.note(info.Total_retrans, time.Now())
}

// note records the number of retransmissions of the SYN until now. If there were several since the last read, the times
// between them are not known, and note uses the earliest possible ones.
func (w *synWatch) note(again uint32, now time.Time) {
	for ; w.retransmits < again; w.retransmits++ {
		w.lost = append(w.lost, w.sent)
		w.sent = w.polledAt
	}
	w.polledAt = now
}

// end returns the times of the lost SYNs; err is the error of the connection. It must be called before anything is sent
// over the connection, because data may be retransmitted, too.
func (w *synWatch) end(err error) []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.raw == nil {
		return nil // no socket was opened
	}
	w.timer.Stop()
	if err == nil {
		w.readRetransmits()
	} else if causeOf(err) == Silent {
		w.lost = append(w.lost, w.sent)
	}
	return w.lost
}

// dialFrom opens a connection from a local port. It also returns the times of the SYNs that were lost on the way, or
// whose answers were.
func (h *loadClient) dialFrom(port int) (net.Conn, []time.Time, error) {
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

// reusable lets a socket use a port that an earlier socket used.
func reusable(raw syscall.RawConn) error {
	var set error
	err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	})
	return errors.Join(err, set)
}
