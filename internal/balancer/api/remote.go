// SPDX-License-Identifier: Apache-2.0

package api

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"time"
)

// Remote is a daemon that is reached over TCP.
type Remote struct {
	// Server is its URL, as in https://lb1.example.com:9540.
	Server string
	// Token is the secret that identifies the client to it; empty: there is none.
	Token string
	// CA is the path of the authorities of its certificate, as PEM; empty: those of this host.
	CA string
	// Certificate and Key are the paths of the client's certificate and key, as PEM; empty: there are none.
	Certificate, Key string
}

// NewRemoteClient returns a client for a daemon over TCP. It connects at each call. Errors: the part of the remote's
// description that cannot be used.
func NewRemoteClient(r Remote) (*Client, error) {
	at, err := url.Parse(r.Server)
	if err != nil || at.Scheme != "https" || at.Host == "" || strings.Trim(at.Path, "/") != "" || at.RawQuery != "" ||
		at.User != nil {
		return nil, fmt.Errorf("the server %q is not https://HOST:PORT, such as https://lb1.example.com:9540", r.Server)
	}
	secured := &tls.Config{MinVersion: tls.VersionTLS12}
	if r.CA != "" {
		text, err := os.ReadFile(r.CA)
		if err != nil {
			return nil, fmt.Errorf("read the authorities of %s: %w", r.Server, err)
		}
		if secured.RootCAs = x509.NewCertPool(); !secured.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate; it needs those of the authorities of %s, as PEM",
				r.CA, r.Server)
		}
	}
	if r.Certificate != "" {
		own, err := tls.LoadX509KeyPair(r.Certificate, r.Key)
		if err != nil {
			return nil, fmt.Errorf("read the client certificate %s and its key: %w", r.Certificate, err)
		}
		secured.Certificates = []tls.Certificate{own}
	}
	base := "https://" + at.Host
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	client := newClient(base, base, &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: secured,
		TLSHandshakeTimeout: 10 * time.Second, Proxy: http.ProxyFromEnvironment})
	client.token = r.Token
	return client, nil
}

// Proxy returns a handler that forwards requests to the daemon with this client's credentials in place of their own. If
// the daemon is not reached, it answers with a problem (502).
func (c *Client) Proxy() (http.Handler, error) {
	base, err := url.Parse(c.base)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Transport:     c.streamClient.Transport,
		FlushInterval: -1,                         // each event goes on at once
		ErrorLog:      log.New(io.Discard, "", 0), // a stream that the daemon's end breaks off; the page says so
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(base)
			r.Out.Host = base.Host
			for _, name := range []string{"Authorization", "Cookie", "Origin", "Referer"} {
				r.Out.Header.Del(name)
			}
			if c.token != "" {
				r.Out.Header.Set("Authorization", "Bearer "+c.token)
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			newProblem(http.StatusBadGateway, "the daemon on "+c.at+" is not reached: "+c.explainError(err).Error()).write(w)
		},
	}, nil
}
