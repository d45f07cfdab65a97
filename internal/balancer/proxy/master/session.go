// SPDX-License-Identifier: Apache-2.0

package master

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Session is a connection to a worker's own socket for several commands. A replaced worker does not end while a session
// is open.
type Session struct {
	// PID is the worker's process.
	PID int

	// mu is held by a command.
	mu   sync.Mutex
	conn net.Conn
}

// prompt ends each answer (management guide, section 9.3, "prompt").
const prompt = "\n> "

// Open connects to the worker that answers at the socket of workers.
func Open(ctx context.Context, path string) (*Session, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connecting to a worker of HAProxy's: %w", err)
	}
	s := &Session{conn: conn}
	// HAProxy would end a session after 10 s without a command ("stats timeout").
	for _, command := range []string{"prompt", "set timeout cli 86400"} {
		if _, err := s.Command(ctx, command); err != nil {
			conn.Close()
			return nil, err
		}
	}
	info, err := s.info(ctx)
	if err != nil {
		conn.Close()
		return nil, err
	}
	s.PID = info["Pid"]
	return s, nil
}

// Close ends the session.
func (s *Session) Close() error { return s.conn.Close() }

// Command has the worker run a command, and returns its answer. After an error the session is of no use.
func (s *Session) Command(ctx context.Context, command string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { s.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := io.WriteString(s.conn, command+"\n"); err != nil {
		return "", fmt.Errorf("asking a worker of HAProxy's %q: %w", command, err)
	}
	var answer []byte
	part := make([]byte, 16<<10)
	for {
		n, err := s.conn.Read(part)
		answer = append(answer, part[:n]...)
		switch {
		case strings.HasSuffix(string(answer[max(0, len(answer)-len(prompt)):]), prompt):
			return strings.TrimSuffix(string(answer), prompt), nil
		case err != nil:
			return "", fmt.Errorf("asking a worker of HAProxy's %q: %w", command, err)
		case len(answer) > maxAnswer:
			return "", fmt.Errorf("asking a worker of HAProxy's %q: %w: it has more than %d bytes", command,
				ErrAnswer, maxAnswer)
		}
	}
}

// Statistics asks for the worker's statistics.
func (s *Session) Statistics(ctx context.Context) (Statistics, error) {
	answer, err := s.Command(ctx, allStatistics)
	if err != nil {
		return nil, err
	}
	return ParseStatistics(answer)
}

// Idle reports whether the worker has been told to end, and waits for this session alone.
func (s *Session) Idle(ctx context.Context) (bool, error) {
	info, err := s.info(ctx)
	// The unstoppable jobs belong to the connection to its master.
	return info["Stopping"] != 0 && info["Jobs"]-info["Unstoppable Jobs"] <= 1, err
}

// info asks for the numbers of "show info".
func (s *Session) info(ctx context.Context) (map[string]int, error) {
	answer, err := s.Command(ctx, "show info")
	if err != nil {
		return nil, err
	}
	numbers := ParseInfo(answer)
	if numbers["Pid"] == 0 {
		return nil, fmt.Errorf("asking a worker of HAProxy's for its process: %w", ErrAnswer)
	}
	return numbers, nil
}

// ParseInfo reads the numbers of an answer to "show info" (management guide, section 9.3).
func ParseInfo(answer string) map[string]int {
	numbers := map[string]int{}
	for text := range strings.Lines(answer) {
		name, value, _ := strings.Cut(text, ": ")
		if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil {
			numbers[name] = n
		}
	}
	return numbers
}
