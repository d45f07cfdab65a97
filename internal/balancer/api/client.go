// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/sources"
	"github.com/jeoul/jeoul/internal/balancer/trace"
	"github.com/jeoul/jeoul/internal/host/standin"
)

// maxAnswer bounds the answer that a client reads, in bytes.
const maxAnswer = 256 << 20

// Client talks to one daemon.
type Client struct {
	// at is the path of its socket, or its URL.
	at   string
	base string
	// token is sent with each request; empty: none is.
	token string
	http  *http.Client
	// streamClient is for long answers, and slowClient for answers that also begin late.
	streamClient, slowClient *http.Client
}

// NewClient returns a client for the unix socket at path. It connects at each
// call.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return standin.Dial(ctx, path)
	}
	return newClient(path, "http://jeoul", &http.Transport{DialContext: dial})
}

// At returns the path of the daemon's socket, or its URL.
func (c *Client) At() string { return c.at }

// newClient returns a client that connects by a transport. It connects at each call.
func newClient(at, base string, transport *http.Transport) *Client {
	transport.DisableKeepAlives, transport.ResponseHeaderTimeout, transport.ExpectContinueTimeout = true,
		30*time.Second, 10*time.Second
	slow := transport.Clone()
	slow.ResponseHeaderTimeout = 0
	return &Client{at: at, base: base, slowClient: &http.Client{Transport: slow},
		http:         &http.Client{Transport: transport, Timeout: 30 * time.Second},
		streamClient: &http.Client{Transport: transport}}
}

// Status asks for the balancer's status. Errors: ErrNotRunning, ErrNoRights, or
// the daemon's.
func (c *Client) Status(ctx context.Context) (*ops.Status, error) {
	status := &ops.Status{}
	return status, c.request(ctx, http.MethodGet, statusPath, nil, status)
}

// Explain asks for the outcome that a packet would have. Errors: ErrNotRunning, ErrNoRights, or the daemon's.
func (c *Client) Explain(ctx context.Context, question trace.Question) (*trace.Packet, error) {
	packet := &trace.Packet{}
	return packet, c.request(ctx, http.MethodPost, explainPath, question, packet)
}

// Trace follows real packets, and calls notify for each event, until the request's
// time is up, the context ends (both no error) or notify returns an error, which
// it returns. Errors: ErrNotRunning, ErrNoRights, or the daemon's.
func (c *Client) Trace(ctx context.Context, request TraceRequest, notify func(trace.Event) error) error {
	return streamEventLines(ctx, c, tracePath, request, func(event trace.Event) error {
		if event.Error != "" {
			return fmt.Errorf("the daemon on %s: %s", c.at, event.Error)
		}
		return notify(event)
	})
}

// Capture follows real packets, with their bytes, and calls notify for each event, until the capture ends, the context
// ends (both no error) or notify returns an error, which it returns. Errors: ErrNotRunning, ErrNoRights, or the
// daemon's.
func (c *Client) Capture(ctx context.Context, request capture.Request, notify func(capture.Event) error) error {
	return streamEventLines(ctx, c, capturePath, request, func(event capture.Event) error {
		if event.Error != "" {
			return fmt.Errorf("the daemon on %s: %s", c.at, event.Error)
		}
		return notify(event)
	})
}

// streamEventLines asks for events, and calls notify for each, until there are no more, the context ends (both no
// error) or notify returns an error, which it returns.
func streamEventLines[E any](ctx context.Context, c *Client, path string, request any, notify func(E) error) error {
	// The answer begins when the eBPF program that reports packets is loaded, which takes time on a busy machine.
	body, err := c.open(ctx, c.slowClient, http.MethodPost, path, request)
	if err != nil {
		return fmt.Errorf("ask the daemon on %s: %w", c.at, err)
	}
	defer body.Close()
	for lines := json.NewDecoder(body); ; {
		var event E
		err := lines.Decode(&event)
		switch {
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("the daemon on %s broke off: %w", c.at, err)
		}
		if err := notify(event); err != nil {
			return err
		}
	}
}

// request sends a request and reads the whole answer.
func (c *Client) request(ctx context.Context, method, path string, question, into any) error {
	body, err := c.open(ctx, c.http, method, path, question)
	if err != nil {
		return fmt.Errorf("ask the daemon on %s: %w", c.at, err)
	}
	defer body.Close()
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf(
			"ask the daemon on %s: the answer cannot be understood (is it another program, or another version?): %w",
			c.at, err)
	}
	return nil
}

// open sends a request and returns the body of an answer that is a success.
func (c *Client) open(ctx context.Context, client *http.Client, method, path string,
	question any) (io.ReadCloser, error) {
	return c.openWith(ctx, client, method, path, question, http.Header{})
}

// openWith is open with a header of its own.
func (c *Client) openWith(ctx context.Context, client *http.Client, method, path string, question any,
	header http.Header) (io.ReadCloser, error) {
	response, err := c.send(ctx, client, method, path, question, header)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// send sends a request and returns an answer that is a success.
func (c *Client) send(ctx context.Context, client *http.Client, method, path string, question any,
	header http.Header) (*http.Response, error) {
	var content io.Reader
	written, isYAML := question.(yamlText)
	switch {
	case isYAML:
		content = bytes.NewReader(written)
	case question != nil:
		text, err := json.Marshal(question)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return nil, err
	}
	request.Header = header
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	if request.ContentLength > largeBody {
		request.Header.Set("Expect", "100-continue") // a refusal comes before the body then
	}
	if isYAML {
		request.Header.Set("Content-Type", "application/yaml")
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, c.explainError(err)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close()
	refusal := &Problem{}
	if json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(refusal) != nil || refusal.Detail == "" {
		refusal = &Problem{Status: response.StatusCode, Title: response.Status, Detail: response.Status}
	}
	return nil, refusal
}

// explainError adds the remedy to a failure to connect.
func (c *Client) explainError(err error) error {
	if c.base == c.at {
		return explainRemote(err)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w; start it with `jeoul run -c FILE`, or name its socket with --socket", ErrNotRunning)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; run as root or as a member of the socket's group", ErrNoRights)
	}
	return err
}

// yamlText is the body of a request that is sent as it is.
type yamlText []byte

// Report sends the report of the program that keeps a source. Errors: ErrNotRunning, ErrNoRights, or a Problem.
func (c *Client) Report(ctx context.Context, source string, report ops.FeedReport) error {
	body, err := c.open(ctx, c.http, http.MethodPut, sourcesPath+"/"+url.PathEscape(source)+"/feed", report)
	if err != nil {
		return err
	}
	return body.Close()
}

// Apply replaces the content of a source by a text in YAML, and returns when it is in force and stored; with dry, it
// only returns the differences. Errors: ErrNotRunning, ErrNoRights, or a Problem: then nothing was changed.
func (c *Client) Apply(ctx context.Context, source string, text []byte, dry bool) (*Change, error) {
	path := sourcesPath + "/" + url.PathEscape(source)
	if dry {
		path += "?dry_run=true"
	}
	body, err := c.open(ctx, c.slowClient, http.MethodPut, path, yamlText(text))
	if err != nil {
		return nil, err
	}
	return c.readChange(body)
}

// SourceServices asks for the names of a source's services, and for its generation, which is 0 if there is no such
// source. Errors: as those of Services.
func (c *Client) SourceServices(ctx context.Context, source string) (names []string, generation uint64, err error) {
	response, err := c.send(ctx, c.slowClient, http.MethodGet, sourcesPath+"/"+url.PathEscape(source), nil,
		http.Header{})
	var refusal *Problem
	if errors.As(err, &refusal) && refusal.Status == http.StatusNotFound {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("ask the daemon on %s: %w", c.at, err)
	}
	defer response.Body.Close()
	var content struct {
		Services []struct {
			Name string `json:"name"`
		} `json:"services"`
	}
	if err = json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&content); err == nil {
		generation, err = sources.GenerationOf(strings.Trim(response.Header.Get("ETag"), `"`))
	}
	if err != nil {
		return nil, 0, fmt.Errorf("ask the daemon on %s for the source %s: %w", c.at, source, err)
	}
	for _, s := range content.Services {
		names = append(names, s.Name)
	}
	return names, generation, nil
}

// Amend changes a source of a generation by a text in YAML that has its new and changed services, and the names of
// removed ones; otherwise it is like Apply. A source of another generation is refused with StatusPreconditionFailed.
func (c *Client) Amend(ctx context.Context, source string, generation uint64, text []byte) (*Change, error) {
	body, err := c.openWith(ctx, c.slowClient, http.MethodPatch, sourcesPath+"/"+url.PathEscape(source)+"/services",
		yamlText(text), http.Header{"If-Match": {strconv.Quote(sources.TagOf(generation))}})
	if err != nil {
		return nil, err
	}
	return c.readChange(body)
}

// readChange reads the result of a change.
func (c *Client) readChange(body io.ReadCloser) (*Change, error) {
	defer body.Close()
	change := &Change{}
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(change); err != nil {
		return nil, fmt.Errorf("apply: the daemon on %s broke off: %w", c.at, err)
	}
	return change, nil
}

// explainRemote adds the remedy to a failure to reach a daemon over TCP.
func explainRemote(err error) error {
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var alert tls.AlertError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w; is api.listen in its configuration, with this port?", ErrNotRunning)
	case errors.As(err, &authority):
		return fmt.Errorf("%w; name the file of its authority with --ca", err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("%w; renew the certificate of the balancer", err)
	case errors.As(err, &alert):
		return fmt.Errorf(
			"%w; the balancer refuses the client certificate: is it one of an authority in api.client_ca, and still valid?", err)
	}
	return err
}
