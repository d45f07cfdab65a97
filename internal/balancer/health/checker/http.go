// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// The most that is read of a response: of its head, and of its body, as far as a pattern may match.
const (
	headBytes = 64 << 10
	bodyBytes = 64 << 10
)

// userAgent is the User-Agent of checks in backends' logs.
const userAgent = "jeoul-check"

// errTooLong says that a response's head has no end within headBytes.
var errTooLong = errors.New("the head of the response is too long")

// http sends a request, and judges the response.
func (a *ask) http() health.Answer {
	want := a.check.HTTP
	if want == nil {
		want = &lb.HTTPCheck{}
	}
	pattern, err := patterns.get(want.Body)
	if err != nil {
		return trouble(err)
	}
	request, err := a.request(want)
	if err != nil {
		return trouble(err)
	}
	conn, warning, answer := a.open(want.HTTP2)
	if conn == nil {
		return answer
	}
	defer finish(conn)
	response, end, err := a.exchange(conn, request, want.HTTP2)
	if err != nil {
		return a.evaluateHTTP(err)
	}
	defer end()
	a.step("request", fmt.Sprintf("%s answered with status %d", asked(request), response.StatusCode), false)
	answer = a.evaluateResponse(request, response, want.Status, pattern)
	if answer.Outcome == health.Passed {
		answer.Reason = warning
		reportWeight(&answer, want.WeightHeader, response.Header)
		return answer
	}
	// kube-proxy answers with status 503 where its node has no ready endpoint, though some may terminate and serve.
	weight := response.Header.Get(cmp.Or(want.WeightHeader, lb.EndpointWeightHeader))
	answer.Finishing = answer.Outcome == health.Failed && !answer.Silent && strings.TrimSpace(weight) == "0"
	return answer
}

// reportWeight adds the weight that a response reports. Without the header field the configured weight holds again, and
// so does it, with a reason, where the value is no weight.
func reportWeight(answer *health.Answer, name string, header http.Header) {
	if name == "" {
		return
	}
	answer.Reports = true
	value := strings.TrimSpace(header.Get(name))
	if value == "" {
		return
	}
	weight, err := strconv.ParseUint(value, 10, 16)
	if err != nil {
		answer.Reason = cmp.Or(answer.Reason, fmt.Sprintf("reports the weight %s in %s, not a whole number up to 65535; "+
			"its configured weight is used", excerpt([]byte(value)), name))
		return
	}
	answer.Reported = lb.ReportedWeight{Known: true, Value: uint16(weight)}
}

// open connects, with TLS where the check has it. Without a connection, the answer says why; with one, warning names a
// fault that is to come.
func (a *ask) open(h2 bool) (c net.Conn, warning string, failed health.Answer) {
	conn, err := a.dial("tcp")
	if err != nil {
		return nil, "", a.answerOf(err)
	}
	if a.check.TLS == nil {
		return conn, "", health.Answer{}
	}
	protocol := ""
	if h2 {
		protocol = "h2"
	}
	secured, answer := a.handshake(conn, protocol)
	switch {
	case secured == nil:
		finish(conn)
		return nil, "", answer
	case h2 && secured.ConnectionState().NegotiatedProtocol != "h2":
		finish(conn)
		return nil, "", health.Fail("no HTTP/2", "does not offer HTTP/2 in the TLS handshake (ALPN)")
	}
	return securedConn{Conn: secured, below: conn}, answer.Reason, health.Answer{}
}

// securedConn is a TLS connection whose CloseWrite ends the stream below as well.
type securedConn struct {
	net.Conn
	below net.Conn
}

func (s securedConn) CloseWrite() error {
	if w, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		w.CloseWrite() // says close_notify
	}
	return closeWrite(s.below)
}

func (a *ask) request(want *lb.HTTPCheck) (*http.Request, error) {
	method, path, host := want.Method, want.Path, want.Host
	if method == "" {
		method = http.MethodGet
	}
	if path == "" {
		path = "/"
	}
	if host == "" {
		host = a.endpoint.String()
	}
	target, err := url.ParseRequestURI(path)
	if err != nil {
		return nil, fmt.Errorf("the path of the request: %w", err)
	}
	target.Scheme, target.Host = "http", host
	if a.check.TLS != nil {
		target.Scheme = "https"
	}
	request := &http.Request{Method: method, URL: target, Host: host, Header: http.Header{"User-Agent": {userAgent}},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Close: !want.HTTP2}
	for _, h := range want.Headers {
		if strings.EqualFold(h.Name, "host") {
			request.Host = h.Value
			continue
		}
		request.Header.Add(h.Name, h.Value)
	}
	return request.WithContext(a.ctx), nil
}

// exchange sends the request and reads the head of the response. end is to be called when its body
// has been read.
func (a *ask) exchange(conn net.Conn, request *http.Request, h2 bool) (response *http.Response, end func(), err error) {
	if h2 {
		return a.exchange2(conn, request)
	}
	if err := request.Write(conn); err != nil {
		return nil, nil, err
	}
	// Bytes beyond the head count as the body's.
	limited := &limitedReader{r: conn, left: headBytes, err: errTooLong}
	buffer := bufio.NewReader(limited)
	const most = 8 // of informational responses
	for range most {
		response, err = http.ReadResponse(buffer, request)
		if err != nil {
			return nil, nil, err
		}
		if response.StatusCode >= 200 || response.StatusCode == http.StatusSwitchingProtocols {
			limited.left, limited.err = bodyBytes, io.EOF
			return response, func() {}, nil
		}
	}
	return nil, nil, errTooLong
}

// transport2 speaks HTTP/2 on connections that it is given. Whether there is TLS below is none of its
// business.
var transport2 = newTransport2()

func newTransport2() *http.Transport {
	t := &http.Transport{
		Protocols: new(http.Protocols), DisableCompression: true, MaxResponseHeaderBytes: headBytes,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return ctx.Value(given{}).(net.Conn), nil
		},
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}

// given is the key of the connection in the context of transport2.
type given struct{}

func (a *ask) exchange2(conn net.Conn, request *http.Request) (*http.Response, func(), error) {
	ctx := context.WithValue(a.ctx, given{}, conn)
	client, err := transport2.NewClientConn(ctx, "http", a.endpoint.String())
	if err != nil {
		return nil, nil, err
	}
	response, err := client.RoundTrip(request)
	if err != nil {
		client.Close()
		return nil, nil, err
	}
	// The client ends with the connection, which the caller ends.
	return response, func() { response.Body.Close() }, nil
}

// evaluateResponse makes an answer of status and body.
func (a *ask) evaluateResponse(request *http.Request, response *http.Response, ranges []lb.StatusRange,
	pattern *regexp.Regexp) health.Answer {
	text := fmt.Sprintf("status %d", response.StatusCode)
	if !passes(response.StatusCode, ranges) {
		return health.Fail(text, fmt.Sprintf("answers %s with %s, not %s", asked(request), text, writeRanges(ranges)))
	}
	if pattern == nil {
		return health.Pass(text)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, bodyBytes))
	if pattern.Match(body) {
		return health.Pass(text)
	}
	if err != nil {
		if answer := a.evaluateHTTP(err); answer.Outcome == health.NoEvidence || answer.Silent {
			answer.Reason = strings.Replace(answer.Reason, "does not answer", "does not end its answer", 1)
			return answer
		}
	}
	return health.Fail("another body", fmt.Sprintf("answers %s with a body that does not match %q",
		asked(request), pattern))
}

// evaluateHTTP makes an answer of why there is no response.
func (a *ask) evaluateHTTP(err error) health.Answer {
	if a.ctx.Err() != nil { // which HTTP/2 wraps in errors of its own
		return health.Silence(a.check.Timeout)
	}
	text := err.Error()
	switch {
	case errors.Is(err, errTooLong):
		return health.Fail("head too long", fmt.Sprintf("answers with more than %d KiB before the body", headBytes>>10))
	case strings.Contains(text, "malformed HTTP"), strings.Contains(text, "http2: "),
		strings.Contains(text, "malformed MIME"):
		return health.Fail("no HTTP", "does not speak HTTP: "+plain(text))
	}
	return a.answerOf(err)
}

// asked is "GET /healthz".
func asked(request *http.Request) string {
	return request.Method + " " + plain(request.URL.RequestURI())
}

// anyStatus passes where a check names none.
var anyStatus = []lb.StatusRange{{First: 200, Last: 399}}

func passes(status int, ranges []lb.StatusRange) bool {
	if len(ranges) == 0 {
		ranges = anyStatus
	}
	for _, r := range ranges {
		if status >= int(r.First) && status <= int(r.Last) {
			return true
		}
	}
	return false
}

func writeRanges(ranges []lb.StatusRange) string {
	if len(ranges) == 0 {
		ranges = anyStatus
	}
	var all []string
	for _, r := range ranges {
		if r.First == r.Last {
			all = append(all, fmt.Sprint(r.First))
		} else {
			all = append(all, fmt.Sprintf("%d..%d", r.First, r.Last))
		}
	}
	return strings.Join(all, " or ")
}

// limitedReader is io.LimitedReader with an error of one's own at the limit.
type limitedReader struct {
	r    io.Reader
	left int
	err  error
}

func (l *limitedReader) Read(b []byte) (int, error) {
	if l.left <= 0 {
		return 0, l.err
	}
	n, err := l.r.Read(b[:min(len(b), l.left)])
	l.left -= n
	return n, err
}

// patterns are regular expressions that were compiled; they come from the configuration.
var patterns patternCache

type patternCache struct{ all sync.Map }

// get returns the expression, or nil for an empty one.
func (c *patternCache) get(text string) (*regexp.Regexp, error) {
	if text == "" {
		return nil, nil
	}
	if p, ok := c.all.Load(text); ok {
		return p.(*regexp.Regexp), nil
	}
	p, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("the pattern of the body: %w", err)
	}
	c.all.Store(text, p)
	return p, nil
}
