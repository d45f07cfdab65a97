// SPDX-License-Identifier: Apache-2.0

// Package master sends commands to HAProxy's master at its socket, and through it to its workers (management guide,
// section 9.4), and parses their answers.
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
	// answerTimeout is how long an answer may take where the context has no earlier deadline.
	answerTimeout = 10 * time.Second
	// maxAnswer is the largest answer, in bytes: some 100,000 lines of statistics.
	maxAnswer = 64 << 20
	// MaxPayload is the largest command with its payload that HAProxy takes, in bytes: its buffers have 16 KiB
	// (tune.bufsize), of which some are reserved (tune.maxrewrite).
	MaxPayload = 14 << 10
)

// Errors of a command.
var (
	// ErrCommand: HAProxy has refused a command.
	ErrCommand = errors.New("HAProxy refused")
	// ErrAnswer: HAProxy's answer cannot be parsed.
	ErrAnswer = errors.New("HAProxy's answer cannot be read")
	// errLine: HAProxy would read a command as several.
	errLine = errors.New("a line break or a semicolon in a command")
)

// Socket is the path of a master's socket.
type Socket string

// Command has the master run a command, and returns its answer.
func (s Socket) Command(ctx context.Context, command string) (string, error) {
	if strings.ContainsAny(command, "\n;") {
		return "", fmt.Errorf("asking HAProxy %q: %w", command, errLine)
	}
	return s.exchange(ctx, command, command+"\n")
}

// WorkerCommand has a worker run a command, and returns its answer.
func (s Socket) WorkerCommand(ctx context.Context, pid int, command string) (string, error) {
	return s.Command(ctx, fmt.Sprintf("@!%d %s", pid, command))
}

// RunWorkerCommand has a worker run a command. Any answer is an error, except those in fine.
func (s Socket) RunWorkerCommand(ctx context.Context, pid int, command string, fine ...string) error {
	answer, err := s.WorkerCommand(ctx, pid, command)
	if err != nil {
		return err
	}
	return checkAnswer(command, answer, fine)
}

// SendPayload sends a worker a payload. It has no empty line, which would end it.
func (s Socket) SendPayload(ctx context.Context, pid int, command, payload string, fine ...string) error {
	if strings.Contains(payload, "\n\n") || strings.ContainsAny(command, "\n;") {
		return fmt.Errorf("handing HAProxy %q: %w", command, errLine)
	}
	whole := fmt.Sprintf("@!%d %s <<\n%s\n\n", pid, command, strings.TrimRight(payload, "\n"))
	answer, err := s.exchange(ctx, command, whole)
	if err != nil {
		return err
	}
	return checkAnswer(command, answer, fine)
}

func checkAnswer(command, answer string, fine []string) error {
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
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
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
	answer, err := io.ReadAll(io.LimitReader(conn, maxAnswer+1))
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("asking HAProxy %q: no answer: %w", name, ctx.Err())
	case err != nil:
		return "", fmt.Errorf("asking HAProxy %q: %w", name, err)
	case len(answer) > maxAnswer:
		return "", fmt.Errorf("asking HAProxy %q: %w: it has more than %d bytes", name, ErrAnswer, maxAnswer)
	}
	return string(answer), nil
}
