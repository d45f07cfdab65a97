// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"
	"time"
)

// maxAnswer bounds what a client reads, in bytes.
const maxAnswer = 256 << 20

// Client talks to the daemon on one socket.
type Client struct {
	path string
	http *http.Client
}

// NewClient returns a client for the unix socket at path. It connects at each
// call.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	return &Client{path: path, http: &http.Client{
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
		Timeout:   10 * time.Second,
	}}
}

// Status asks for the balancer's status. Errors: ErrNotRunning, ErrNoRights, or
// what the daemon said.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	status := &Status{}
	if err := c.get(ctx, statusPath, status); err != nil {
		return nil, fmt.Errorf("ask the daemon on %s: %w", c.path, err)
	}
	return status, nil
}

func (c *Client) get(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://jeoul"+path, nil)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return explain(err)
	}
	defer response.Body.Close()
	body := json.NewDecoder(io.LimitReader(response.Body, maxAnswer))
	if response.StatusCode != http.StatusOK {
		var said failure
		if body.Decode(&said) != nil || said.Error == "" {
			said.Error = response.Status
		}
		return errors.New(said.Error)
	}
	if err := body.Decode(into); err != nil {
		return fmt.Errorf("the answer cannot be understood (is it another program, or another version?): %w", err)
	}
	return nil
}

// explain turns a failure to connect into what a person can do about it.
func explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w; start it with `jeoul run -c FILE`, or name its socket with --socket", ErrNotRunning)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; run as root or as a member of the socket's group", ErrNoRights)
	}
	return err
}
