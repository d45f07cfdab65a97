// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/bgp/hosttable"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/clock"
)

// KeeperOptions are the settings and parts of a Keeper.
type KeeperOptions struct {
	// Socket is the speaker's.
	Socket string
	// Program is the program that the speaker is to run.
	Program Program
	// Established is called after each new session, because its router may begin to send packets; nil: no call.
	Established func()
	Log         *slog.Logger
}

// How long things take.
const (
	// startTimeout is how long a speaker that was started may take to answer, and endTimeout how long one that
	// is to end.
	startTimeout = 5 * time.Second
	endTimeout   = 5 * time.Second
	// minBackoff is the pause before the first retry after a failure. Each later one is twice as long, up to
	// maxBackoff.
	minBackoff = 250 * time.Millisecond
	maxBackoff = 30 * time.Second
	// processPoll is the interval between two checks of whether a process has begun, or ended.
	processPoll = 20 * time.Millisecond
)

// Keeper keeps a speaker running while the configuration has BGP, and sends it the desired state.
type Keeper struct {
	opt      KeeperOptions
	client   *Client
	sessions sessionLog
	// lost is set from the death of the speaker until another one runs. Only Run uses it.
	lost bool

	mu sync.Mutex
	// desired is the desired state; nil until there is one. version is its number, and sent the number of the one that
	// the speaker has; told is closed when sent changes.
	desired        *Desired
	version, sent  uint64
	delivered      chan struct{}
	desiredChanged chan struct{}
	state          State
	// problem is the reason for which the speaker does not have the desired state; nil if it has.
	problem error
	changes chan struct{}
}

// NewKeeper returns a keeper that does nothing before Run.
func NewKeeper(opt KeeperOptions) *Keeper {
	return &Keeper{opt: opt, client: NewClient(opt.Socket),
		sessions:  sessionLog{log: opt.Log, established: opt.Established, known: map[string]*loggedPeer{}},
		delivered: make(chan struct{}), desiredChanged: make(chan struct{}, 1), changes: make(chan struct{}, 1)}
}

// AnnouncedVIPs returns the VIPs that a running speaker announces; none if no speaker runs.
func (k *Keeper) AnnouncedVIPs(ctx context.Context) []netip.Addr {
	state, err := k.client.State(ctx, 0)
	if err != nil || !state.Configured {
		return nil
	}
	return state.VIPs
}

// SetDesired sets the speaker's desired state. It does not wait for the speaker.
func (k *Keeper) SetDesired(desired Desired) {
	k.mu.Lock()
	k.desired = &desired
	k.version++
	k.mu.Unlock()
	select {
	case k.desiredChanged <- struct{}{}:
	default:
	}
}

// AwaitDelivery waits until the speaker has the desired state, or ctx ends.
func (k *Keeper) AwaitDelivery(ctx context.Context) {
	for {
		k.mu.Lock()
		delivered, done := k.delivered, k.sent == k.version
		k.mu.Unlock()
		if done {
			return
		}
		select {
		case <-delivered:
		case <-ctx.Done():
			return
		}
	}
}

// State returns the state of the speaker and its peers, and the reason for which it does not have the desired state;
// running is false if no speaker runs.
func (k *Keeper) State() (state State, problem error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state, k.problem
}

// Changes has something to receive after State may have changed.
func (k *Keeper) Changes() <-chan struct{} { return k.changes }

// Run keeps the speaker running until ctx ends, and leaves it running then.
func (k *Keeper) Run(ctx context.Context) {
	wait := time.Duration(0)
	for ctx.Err() == nil {
		err := k.reconcile(ctx)
		if ctx.Err() != nil {
			return
		}
		k.setProblem(err)
		if err == nil {
			wait = 0
			continue
		}
		wait = min(max(2*wait, minBackoff), maxBackoff)
		k.followState(ctx, wait)
	}
}

// followState stores the changes of a speaker's state that does not have the desired state, until that changes or the
// duration is over.
func (k *Keeper) followState(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for version := k.desiredVersion(); version == k.desiredVersion(); {
		known, _ := k.State()
		state, err := k.pollState(ctx, known.Number)
		switch {
		case errors.Is(err, context.Canceled):
			return // something else is wanted
		case err != nil || state.PID != known.PID || state.Start != known.Start:
			k.waitForChange(ctx, d)
			return
		}
		k.applyState(state)
	}
}

func (k *Keeper) desiredVersion() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.version
}

// waitForChange waits for another desired state, at most for the duration.
func (k *Keeper) waitForChange(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-k.desiredChanged:
	}
}

// setProblem stores an error, and logs it once.
func (k *Keeper) setProblem(err error) {
	k.mu.Lock()
	before := k.problem
	k.problem = err
	k.mu.Unlock()
	if err != nil && (before == nil || before.Error() != err.Error()) {
		k.opt.Log.Error(err.Error(), logAttrs())
	}
	if err != nil {
		k.notifyChanged()
	}
}

func (k *Keeper) notifyChanged() {
	select {
	case k.changes <- struct{}{}:
	default:
	}
}

// reconcile reads the speaker's state once, and sends it the desired one where it lacks that.
func (k *Keeper) reconcile(ctx context.Context) error {
	k.mu.Lock()
	desired, version := k.desired, k.version
	known, pending := k.state, k.sent != k.version
	k.mu.Unlock()
	if desired == nil || !desired.BGP.On() && known.PID == 0 && !pending {
		k.waitForChange(ctx, time.Second)
		return nil
	}
	if !desired.BGP.On() {
		return k.stopSpeaker(ctx, version)
	}
	after := known.Number
	if pending {
		after = 0 // at once
	}
	state, err := k.pollState(ctx, after)
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, context.Canceled):
		return nil // something else is wanted
	case errors.Is(err, ErrNoSpeaker):
		err := k.start(ctx, known)
		if err != nil && ctx.Err() == nil {
			k.markLost(known)
		}
		return err
	case err != nil:
		return err
	}
	k.lost = false
	switch outdated, err := k.isOutdated(state); {
	case err != nil:
		return err
	case outdated:
		return k.replace(ctx, state)
	}
	another := state.PID != known.PID || state.Start != known.Start
	if another || pending || !state.Configured || state.Orphaned {
		if err := k.client.Apply(ctx, *desired); err != nil {
			k.markUndelivered()
			k.applyState(state) // its sessions go on nevertheless
			return err
		}
		k.markDelivered(version)
	}
	k.applyState(state)
	return nil
}

// isOutdated reports whether a speaker runs another program than the installed one. Without an installed program, a
// speaker of the same protocol is kept, because no other could be started.
func (k *Keeper) isOutdated(state State) (bool, error) {
	build, err := k.opt.Program.Build()
	if err != nil {
		if state.Protocol == Protocol {
			return false, nil
		}
		return false, fmt.Errorf("replace the BGP speaker (process %d) of another version: %w", state.PID, err)
	}
	return state.Protocol != Protocol || state.Build != build, nil
}

// pollState polls the speaker's state, until the desired state changes.
func (k *Keeper) pollState(ctx context.Context, after uint64) (State, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-k.desiredChanged:
			cancel()
		case <-stop:
		}
	}()
	return k.client.State(ctx, after)
}

// markDelivered records that the speaker has the desired state.
func (k *Keeper) markDelivered(version uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sent = version
	close(k.delivered)
	k.delivered = make(chan struct{})
}

// markUndelivered records that the speaker lacks the desired state. Versions begin with 1.
func (k *Keeper) markUndelivered() {
	k.mu.Lock()
	k.sent = 0
	k.mu.Unlock()
}

// markLost records that no speaker runs, and so no session. The process that has died stays known.
func (k *Keeper) markLost(known State) {
	k.lost = known.PID != 0
	peers := known.Peers
	known.Peers = make([]ops.BGPPeer, 0, len(peers))
	for _, p := range peers {
		now := ops.BGPPeer{Address: p.Address, ASN: p.ASN, State: "idle", Since: p.Since, Sessions: p.Sessions,
			Reason: "the BGP speaker does not run"}
		if p.Established() {
			now.Since = time.Now()
		}
		known.Peers = append(known.Peers, now)
	}
	k.applyState(known)
}

// applyState stores the speaker's state, and logs how its sessions have changed.
func (k *Keeper) applyState(state State) {
	k.mu.Lock()
	before := k.state
	k.state = state
	k.mu.Unlock()
	if before.PID != 0 && before.PID != state.PID {
		k.sessions.speakerReplaced()
	}
	k.sessions.logPeers(state.Peers)
	if before.Number != state.Number || before.PID != state.PID {
		k.notifyChanged()
	}
}

// start starts a speaker where none is.
func (k *Keeper) start(ctx context.Context, known State) error {
	// A speaker that could make no file for its socket has left no trace.
	left := k.socketExists() || known.PID != 0
	if known.PID != 0 && !k.lost {
		k.opt.Log.Error(fmt.Sprintf("the BGP speaker (process %d) has died: another one is started", known.PID),
			logAttrs())
	}
	if err := k.opt.Program.Start(k.opt.Socket, left); err != nil {
		return fmt.Errorf("start the BGP speaker: %w", err)
	}
	bound, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		state, err := k.client.State(bound, 0)
		if err == nil {
			return k.checkProtocol(ctx, state)
		}
		if clock.Sleep(bound, processPoll) != nil {
			return fmt.Errorf("start the BGP speaker: it does not answer: %w", err)
		}
	}
}

// checkProtocol ends a speaker of another protocol that was just started: replacing it would only start the same
// program again.
func (k *Keeper) checkProtocol(ctx context.Context, state State) error {
	if state.Protocol == Protocol {
		return nil
	}
	err := fmt.Errorf("start the BGP speaker: the installed jeoul-bgp speaks version %d of the protocol between the two "+
		"programs, and this balancer version %d: install both of one build, and restart the balancer",
		state.Protocol, Protocol)
	return errors.Join(err, k.end(ctx, state, Restart))
}

// socketExists reports whether a speaker's socket is still there: a speaker that closes its sessions removes it.
func (k *Keeper) socketExists() bool {
	_, err := os.Stat(k.opt.Socket)
	return !errors.Is(err, fs.ErrNotExist)
}

// replace ends a speaker that runs another program, and has routers keep its routes for the next one.
func (k *Keeper) replace(ctx context.Context, state State) error {
	k.opt.Log.Info(fmt.Sprintf(
		"the BGP speaker (process %d) is of another build than the installed jeoul-bgp: it is restarted, and routers keep "+
			"the routes meanwhile where they agreed to that", state.PID), logAttrs())
	if err := k.end(ctx, state, Restart); err != nil && ctx.Err() == nil {
		// A speaker that is killed sends routers no notification either.
		k.opt.Log.Warn(fmt.Sprintf("the BGP speaker (process %d) cannot be restarted, and is killed: %v", state.PID,
			err), logAttrs())
		if err := kill(ctx, state); err != nil {
			return err
		}
	}
	k.mu.Lock()
	k.state = State{}
	k.mu.Unlock()
	return nil
}

// kill ends a speaker's process that does not end by itself.
func kill(ctx context.Context, state State) error {
	fd, err := unix.PidfdOpen(state.PID, 0)
	if err == nil {
		defer unix.Close(fd)
		if hasExited(state) { // or it is another process, whose number that is now
			return nil
		}
		err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill the BGP speaker (process %d): %w", state.PID, err)
	}
	return awaitEnd(ctx, state)
}

// awaitEnd waits until a speaker's process is gone.
func awaitEnd(ctx context.Context, state State) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	for !hasExited(state) {
		if clock.Sleep(ctx, processPoll) != nil {
			return fmt.Errorf("the BGP speaker (process %d) does not end", state.PID)
		}
	}
	return nil
}

// stopSpeaker ends a speaker whose desired state has no BGP any more.
func (k *Keeper) stopSpeaker(ctx context.Context, version uint64) error {
	state, err := k.client.State(ctx, 0)
	if err == nil {
		err = k.end(ctx, state, Stop)
	}
	if err != nil && !errors.Is(err, ErrNoSpeaker) {
		return err
	}
	k.mu.Lock()
	k.state = State{}
	k.mu.Unlock()
	k.markDelivered(version)
	k.notifyChanged()
	return nil
}

// end ends a speaker, and waits until its process is gone.
func (k *Keeper) end(ctx context.Context, state State, how ShutdownMode) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	// One that has ended may have had no time to answer.
	if err := k.client.Shutdown(ctx, how); err != nil && !hasExited(state) {
		return err
	}
	return awaitEnd(ctx, state)
}

// hasExited reports whether a speaker's process has ended; a zombie counts as ended.
func hasExited(state State) bool {
	start, status, err := readProcess(state.PID)
	return err != nil || start != state.Start || status == "Z"
}

// Stop withdraws all routes and ends the speaker, if there is one. Call it after Run has returned.
func (k *Keeper) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	state, err := k.client.State(ctx, 0)
	switch {
	case errors.Is(err, ErrNoSpeaker):
		err = nil
	case err == nil:
		err = k.end(ctx, state, Stop)
	}
	if err != nil {
		return fmt.Errorf("stop the BGP speaker: %w", err)
	}
	// A speaker that died, or that could not remove its routes, has left them.
	return hosttable.Clean(RoutesJournal(k.opt.Socket))
}
