// SPDX-License-Identifier: Apache-2.0

// Package picture answers those who only read a data plane: status, counters, flows, tables, reply hops and the mirror
// of routes. Each change that was made shows another Picture, which is never changed itself; so nobody who reads waits
// for a change under way, which holds the data plane's lock while a program is loaded and verified. A reader's maps
// stay
// open until it has done (Shown.Read).
package picture
