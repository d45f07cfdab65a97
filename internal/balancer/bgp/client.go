// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/standin"
)

// Errors that callers may test for.
var (
	// ErrNoSpeaker: no process answers on the socket.
	ErrNoSpeaker = errors.New("no speaker answers")
	// ErrUntrusted: the process that answers is not the one that it says it is, or another user's.
	ErrUntrusted = errors.New("the process that answers is not a speaker of this balancer")
)

// answerTimeout bounds the wait for an answer: many times a speaker's own wait for a change of state.
const answerTimeout = 15 * time.Second

// maxAnswer bounds an answer of a speaker, in bytes.
const maxAnswer = 16 << 20

// Client asks the speaker on a socket.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a client that connects at each call.
func NewClient(socket string) *Client {
	c := &Client{socket: socket}
	c.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := standin.Dial(ctx, socket)
			if err != nil {
				return nil, fmt.Errorf("%w on %s: %w", ErrNoSpeaker, socket, err)
			}
			if err := checkOwner(conn); err != nil {
				conn.Close()
				return nil, err
			}
			return conn, nil
		}}}
	return c
}

// checkOwner refuses a socket of another user's process: requests to the speaker may have passwords.
func checkOwner(conn net.Conn) error {
	cred, err := credentials(conn)
	if err != nil {
		return err
	}
	if uid := int(cred.Uid); uid != os.Geteuid() && uid != 0 {
		return fmt.Errorf("%w: process %d is the user's %d", ErrUntrusted, cred.Pid, uid)
	}
	return nil
}

func credentials(conn net.Conn) (cred *unix.Ucred, err error) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(controlErr, err)
}

// State requests the speaker's state; after is the number of the known state: the speaker answers when it has another
// one, after a second at most. Errors: ErrNoSpeaker, ErrUntrusted.
//
// The state of a speaker of another protocol has only the fields that all protocols share: Protocol, Build, PID and
// Start.
func (c *Client) State(ctx context.Context, after uint64) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var text json.RawMessage
	if err := c.request(ctx, http.MethodGet, statePath+"?after="+strconv.FormatUint(after, 10), nil, &text); err != nil {
		return State{}, err
	}
	state, err := readState(text)
	if err != nil {
		return state, err
	}
	if start, err := ProcessStart(state.PID); err != nil || start != state.Start {
		return state, fmt.Errorf("%w: process %d was not started when it says", ErrUntrusted, state.PID)
	}
	return state, nil
}

// readState reads the speaker's identity first, because the other fields may be of another form.
func readState(text []byte) (state State, err error) {
	var who struct {
		Protocol int    `json:"protocol"`
		Build    string `json:"build"`
		PID      int    `json:"pid"`
		Start    uint64 `json:"start"`
	}
	if err = json.Unmarshal(text, &who); err == nil && who.Protocol == Protocol {
		err = json.Unmarshal(text, &state)
	}
	if err != nil {
		return State{}, fmt.Errorf("read the BGP speaker's answer: %w", err)
	}
	state.Protocol, state.Build, state.PID, state.Start = who.Protocol, who.Build, who.PID, who.Start
	return state, nil
}

// Apply sends the speaker its desired state. It returns when the speaker has announced that to its peers, or has found
// that it cannot yet.
func (c *Client) Apply(ctx context.Context, desired Desired) error {
	return c.request(ctx, http.MethodPut, desiredPath, desired, nil)
}

// Shutdown ends the speaker.
func (c *Client) Shutdown(ctx context.Context, how ShutdownMode) error {
	return c.request(ctx, http.MethodPost, endPath, shutdownRequest{how}, nil)
}

// request sends a request to the speaker, and reads its answer.
func (c *Client) request(ctx context.Context, method, path string, question, into any) error {
	var content io.Reader
	if question != nil {
		text, err := json.Marshal(question)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://speaker"+path, content)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("ask the BGP speaker: %w", err)
	}
	defer response.Body.Close()
	body := io.LimitReader(response.Body, maxAnswer)
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(body)
		return fmt.Errorf("the BGP speaker: %s", strings.TrimSpace(string(text)))
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return fmt.Errorf("read the BGP speaker's answer: %w", err)
	}
	return nil
}

// ProcessStart returns when a process was started, in clock ticks since boot (proc_pid_stat(5), field 22).
func ProcessStart(pid int) (uint64, error) {
	start, _, err := readProcess(pid)
	return start, err
}

// readProcess returns when a process was started, and its state, such as "Z" for one that has ended.
func readProcess(pid int) (start uint64, state string, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", err
	}
	return readStat(string(text))
}

// readStat finds the fields behind the program's name, which may have spaces and parentheses.
func readStat(stat string) (start uint64, state string, err error) {
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	if end < 0 || len(fields) < 20 {
		return 0, "", fmt.Errorf("read when a process was started: %q is no line of /proc/PID/stat", stat)
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return start, fields[0], err
}
