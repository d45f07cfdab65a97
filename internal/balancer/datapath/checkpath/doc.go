// SPDX-License-Identifier: Apache-2.0

// Package checkpath is the way of health checks through the data plane: each backend is asked at its service's VIP, by
// packets that go to it as the service's packets do.
package checkpath
