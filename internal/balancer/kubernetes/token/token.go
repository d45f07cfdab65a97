// SPDX-License-Identifier: Apache-2.0

// Package token reads the token of a kubeconfig again when the API server refuses the previous one. client-go reads
// again only tokens in files of their own.
package token

import (
	"net/http"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Follow has the clients of a configuration that was read from a kubeconfig use the token that this file has after the
// API server refused the previous one.
func Follow(reach *rest.Config, kubeconfig string) {
	if reach.BearerToken == "" || reach.BearerTokenFile != "" {
		return // client-go reads other credentials again
	}
	t := &token{kubeconfig: kubeconfig}
	t.text.Store(&reach.BearerToken)
	reach.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{next, t} })
}

// token is the token that a kubeconfig had when it was last read.
type token struct {
	kubeconfig string
	text       atomic.Pointer[string]
}

// read reads the token again. It stays where the file cannot be read or has none: the file may be half written.
func (t *token) read() {
	now, err := clientcmd.BuildConfigFromFlags("", t.kubeconfig)
	if err == nil && now.BearerToken != "" {
		t.text.Store(&now.BearerToken)
	}
}

// transport is a transport whose requests have a token.
type transport struct {
	next  http.RoundTripper
	token *token
}

// WrappedRoundTripper returns the transport below, which client-go asks for.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper. A refused request is not repeated, for client-go's callers do that.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context()) // a transport must not change it
	request.Header.Set("Authorization", "Bearer "+*t.token.text.Load())
	response, err := t.next.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusUnauthorized {
		t.token.read()
	}
	return response, err
}
