// SPDX-License-Identifier: Apache-2.0

// Package master talks to HAProxy's master at its socket, and through it to its workers (management guide, section
// 9.4), and parses their answers.
package master

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Bounds of a command.
const (
	// bound is how long an answer may take where the context has no earlier deadline.
	bound = 10 * time.Second
	// largest is the largest answer, in bytes: some 100,000 lines of statistics.
	largest = 64 << 20
	// LargestPayload is the largest command with its payload that HAProxy takes, in bytes: its buffers have 16 KiB
	// (tune.bufsize), of which some are reserved (tune.maxrewrite).
	LargestPayload = 14 << 10
)

// Errors of a command.
var (
	// ErrCommand: HAProxy has refused it.
	ErrCommand = errors.New("HAProxy refused")
	// ErrAnswer: HAProxy's answer cannot be parsed.
	ErrAnswer = errors.New("HAProxy's answer cannot be read")
	// errLine: a command would be several.
	errLine = errors.New("a line break or a semicolon in a command")
)

// Socket is the path of a master's socket.
type Socket string

// Ask has the master do a command, and returns its answer.
func (s Socket) Ask(ctx context.Context, command string) (string, error) {
	if strings.ContainsAny(command, "\n;") {
		return "", fmt.Errorf("asking HAProxy %q: %w", command, errLine)
	}
	return s.exchange(ctx, command, command+"\n")
}

// Worker has a worker do a command.
func (s Socket) Worker(ctx context.Context, pid int, command string) (string, error) {
	return s.Ask(ctx, fmt.Sprintf("@!%d %s", pid, command))
}

// Do has a worker do a command that answers with an error only, or else with one of the words in fine.
func (s Socket) Do(ctx context.Context, pid int, command string, fine ...string) error {
	answer, err := s.Worker(ctx, pid, command)
	if err != nil {
		return err
	}
	return judge(command, answer, fine)
}

// Hand hands a worker a payload. It has no empty line, which would end it.
func (s Socket) Hand(ctx context.Context, pid int, command, payload string, fine ...string) error {
	if strings.Contains(payload, "\n\n") || strings.ContainsAny(command, "\n;") {
		return fmt.Errorf("handing HAProxy %q: %w", command, errLine)
	}
	whole := fmt.Sprintf("@!%d %s <<\n%s\n\n", pid, command, strings.TrimRight(payload, "\n"))
	answer, err := s.exchange(ctx, command, whole)
	if err != nil {
		return err
	}
	return judge(command, answer, fine)
}

func judge(command, answer string, fine []string) error {
	answer = strings.TrimSpace(answer)
	if answer == "" {
		return nil
	}
	for _, f := range fine {
		if strings.Contains(answer, f) {
			return nil
		}
	}
	return fmt.Errorf("%w %q: %s", ErrCommand, command, answer)
}

// exchange sends a command and reads until HAProxy ends the connection.
func (s Socket) exchange(ctx context.Context, name, text string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", string(s))
	if err != nil {
		return "", fmt.Errorf("asking HAProxy %q: %w", name, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err = io.WriteString(conn, text)
	if half, is := conn.(*net.UnixConn); err == nil && is {
		err = half.CloseWrite() // the master waits for another command otherwise
	}
	if err != nil {
		return "", fmt.Errorf("asking HAProxy %q: %w", name, err)
	}
	answer, err := io.ReadAll(io.LimitReader(conn, largest+1))
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("asking HAProxy %q: no answer: %w", name, ctx.Err())
	case err != nil:
		return "", fmt.Errorf("asking HAProxy %q: %w", name, err)
	case len(answer) > largest:
		return "", fmt.Errorf("asking HAProxy %q: %w: it has more than %d bytes", name, ErrAnswer, largest)
	}
	return string(answer), nil
}
