// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// checkPath follows that of a backend.
const checkPath = "/check"

// checkTimeout is how long a request for a check may take: several checks are made one after the
// other, and each takes its timeout at most. It is less than the server takes to write an answer.
const checkTimeout = 25 * time.Second

// check checks a backend now.
func (b Balancer) check(ctx context.Context, at BackendParams) (ops.Checked, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return b.Check(ctx, at.Service, at.Backend)
}

// Check checks a backend now, without effect on its verdict. Errors: ErrNotRunning, ErrNoRights, or the daemon's.
func (c *Client) Check(ctx context.Context, service, backend string) (*ops.Checked, error) {
	checked := &ops.Checked{}
	return checked, c.request(ctx, http.MethodPost, pathOf(service, backend)+checkPath, nil, checked)
}
