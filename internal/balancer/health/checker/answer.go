// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/health"
)

// errnos are the endpoint's or the network's answers as reasons.
var errnos = map[unix.Errno]health.Answer{
	unix.ECONNREFUSED: health.Fail("connection refused", "refuses connections"),
	unix.ECONNRESET:   health.Fail("connection reset", "resets the connection"),
	unix.EPIPE:        health.Fail("connection closed", "closes the connection before it answers"),
	unix.EHOSTUNREACH: health.Unreachable("host unreachable",
		"cannot be reached: its address is not found on the link, or a router says so"),
	unix.EHOSTDOWN:   health.Unreachable("host down", "cannot be reached: its address is not found on the link"),
	unix.ENETUNREACH: health.Unreachable("network unreachable", "cannot be reached: a router has no route to it"),
	unix.EACCES:      health.Fail("prohibited", "cannot be reached: a router prohibits it"),
	unix.ENOPROTOOPT: health.Fail("protocol unreachable", "does not speak the protocol, says its host"),
	unix.EPROTO:      health.Fail("protocol error", "breaks the protocol"),
	unix.ETIMEDOUT:   {Outcome: health.Failed, Silent: true, Text: "no answer", Reason: "does not answer"},
}

// troubles are errors that this host makes, wherever they come up.
var troubles = []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EADDRNOTAVAIL, unix.ENETDOWN,
	unix.EPERM}

// answerOf turns an error of the request into an answer.
func (a *ask) answerOf(err error) health.Answer {
	var mine own
	if errors.As(err, &mine) || errors.Is(err, health.ErrNoPath) {
		return trouble(err)
	}
	for _, errno := range troubles {
		if errors.Is(err, errno) {
			return trouble(err)
		}
	}
	var timeout net.Error
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) &&
		timeout.Timeout() {
		return health.Silence(a.check.Timeout)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errnos[unix.EPIPE]
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		if answer, ok := errnos[errno]; ok {
			return answer
		}
	}
	text := plain(err.Error())
	return health.Fail(text, "cannot be asked: "+text)
}

// trouble names the errno as the kind, and all of the error as the reason.
func trouble(err error) health.Answer {
	kind := err.Error()
	var errno unix.Errno
	if errors.As(err, &errno) {
		kind = errno.Error()
	} else if errors.Is(err, health.ErrNoPath) {
		kind = health.ErrNoPath.Error()
	}
	answer := health.Trouble(plain(kind), "is not asked: "+plain(err.Error()))
	answer.Passing = errors.Is(err, health.ErrForNow)
	return answer
}

// plain returns text of others as one line that is short and can be printed.
func plain(text string) string {
	const most = 200
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' || r >= 0x80 && r < 0xa0 {
			return '.'
		}
		return r
	}, strings.ToValidUTF8(text, "."))
}
