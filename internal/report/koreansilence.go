// SPDX-License-Identifier: Apache-2.0

package report

// koreanSilence are about hosts that fall silent, and clients that use their ports again.
var koreanSilence = []phrase{
	{"Restarted", "재시작"}, {"restarted", "재시작"}, {"restarted {n}", "재시작 {1}"}, {"Killed", "강제 종료"}, {"killed", "강제 종료"}, {"killed {n}", "강제 종료 {1}"},
	{"Stopped and started", "중지 후 시작"}, {"stopped and started", "중지 후 시작"}, {"stopped and started {n}", "중지 후 시작 {1}"},
	{"Restarted, killed, stopped", "재시작, 강제 종료, 중지"}, {"The balancer's process is replaced by another one, killed and replaced a while later, or stopped for good and started anew. What is in the kernel may go on without the process; what the process itself carries ends with it, and stopping takes everything away.", "밸런서의 프로세스를 다른 것으로 바꾸거나, 강제 종료하고 잠시 뒤 바꾸거나, 완전히 중지한 뒤 새로 시작합니다. 커널에 있는 것은 프로세스 없이도 이어질 수 있고, 프로세스가 직접 나르던 것은 함께 끝나며, 중지하면 모두 거둡니다."},
	{"a process that is killed gets SIGKILL, and another one is started after the time that the suite says; addresses and rules that the laboratory has set up for it stay", "강제 종료하는 프로세스에는 SIGKILL을 보내고, 스위트가 정한 시간이 지난 뒤 다른 프로세스를 시작함; 실험실이 마련한 주소와 규칙은 그대로 둠"},
	{"Fell silent", "응답 끊김"}, {"fell silent", "응답 끊김"}, {"fell silent {n}", "응답 끊김 {1}"},
	{"Drained and reset", "드레인 후 리셋"}, {"drained and reset", "드레인 후 리셋"}, {"drained and reset {n}", "드레인 후 리셋 {1}"},
	{"A backend's host is taken off the segment while it holds connections, and comes back without them. Until a balancer has noticed, it sends a share of the connections there, and their SYNs are lost. A balancer that notices by itself needs no health check for that; one that does not goes on until it is told, and all that is lost counts as before its notice.", "연결을 가진 백엔드 호스트를 세그먼트에서 떼었다가 연결 없이 되돌립니다. 밸런서가 알아차리기 전에는 연결의 일부가 그리로 가고 SYN이 유실됩니다. 스스로 알아차리는 밸런서는 이를 위해 헬스 체크가 필요 없고, 그렇지 않은 밸런서는 알려 줄 때까지 계속 보내므로 유실은 모두 알아차리기 전의 것으로 셉니다."},
	{"Ports that are used again", "다시 쓰는 포트"}, {"Clients that open one connection after the other from the same few local ports, as crawlers, proxies and resolvers do. A balancer that remembers flows finds an entry of the connection before. A SYN counts as lost if the client's kernel had to send another, a second later, or if none was answered.", "크롤러, 프록시, 리졸버처럼 몇 안 되는 같은 로컬 포트에서 연결을 잇달아 여는 클라이언트입니다. 플로를 기억하는 밸런서는 이전 연결의 항목을 만납니다. 클라이언트 커널이 1초 뒤 SYN을 다시 보내야 했거나 어느 SYN도 응답받지 못하면 유실로 셉니다."},
	{"SYNs that were lost", "유실된 SYN"}, {"Of clients that use their ports again and again: their kernel had to send another, or none was answered.", "포트를 거듭 다시 쓰는 클라이언트의 SYN 중 커널이 다시 보내야 했거나 응답받지 못한 것."},
	{"Connections from ports that are used again", "다시 쓰는 포트의 연결"}, {"Connections from ports that are used again which failed", "다시 쓰는 포트의 실패한 연결"}, {"Answered rightly.", "바르게 답한 것."},
	{"Ports that were not free", "비어 있지 않던 포트"}, {"Connections that could not be tried, for the one before from the same port had not ended.", "같은 포트의 이전 연결이 끝나지 않아 시도하지 못한 연결."},
	{"A host that falls silent", "응답이 끊긴 호스트"}, {"Of clients that use their ports again: what was sent before the balancer showed that it knew, and after it; and how long it took to show that the host was back.", "포트를 다시 쓰는 클라이언트가 밸런서가 알아차렸음을 보이기 전과 후에 보낸 것, 그리고 호스트가 돌아왔음을 보일 때까지 걸린 시간."},
	{"Never: it has no health check here, and does not notice by itself. A proxy answers the client's SYN itself; what it loses are the connections that it cannot make.", "알아차리지 못함: 여기서는 헬스 체크가 없고 스스로 알아차리지 않습니다. 프록시는 클라이언트의 SYN에 직접 답하므로, 맺지 못한 연결이 유실입니다."},
	{"Noticed after", "알아차린 시간"}, {"Silent for", "끊긴 시간"}, {"Back after", "복귀 인지"}, {"never", "알아차리지 못함"},
	{"SYNs lost before", "이전 유실 SYN"}, {"SYNs lost after", "이후 유실 SYN"}, {"Connections failed before", "이전 실패 연결"}, {"Connections failed after", "이후 실패 연결"},
	{"UDP unanswered before", "이전 무응답 UDP"}, {"UDP unanswered after", "이후 무응답 UDP"},
	{"A drained backend that resets its connections", "연결을 리셋하는 드레인된 백엔드"}, {"Its clients come again from the same port; with direct server return the balancer has not seen the resets.", "그 클라이언트는 같은 포트에서 다시 옵니다. 직접 서버 반환에서는 밸런서가 그 리셋을 보지 못했습니다."},
	{"Reset by it", "리셋한 연결"}, {"Came again", "다시 온 연결"}, {"To the drained one", "드레인된 백엔드로"},
	{"No new connection went to a backend that takes none through {}.", "받지 않는 백엔드로 간 새 연결 없음: {1}."},
	{"{} sent new connections to backends that take none: {n} ({}).", "{1}: 받지 않는 백엔드로 새 연결 {2}개를 보냄 ({3})."},
	{"No SYN was lost of clients that use their ports again through {}.", "포트를 다시 쓰는 클라이언트의 SYN 유실 없음: {1}."},
	{"{} lost SYNs of clients that use their ports again: {n} ({}).", "{1}: 포트를 다시 쓰는 클라이언트의 SYN {2}개 유실 ({3})."},
	{"Once it was noticed that a host was silent, nothing was lost through {}.", "호스트의 응답이 끊긴 것을 알아차린 뒤 유실 없음: {1}."},
	{"{} never noticed that a host was silent for {n} s: SYNs lost {n}, connections failed {n}, UDP queries unanswered {n}.", "{1}: 호스트의 응답이 {2}초 동안 끊긴 것을 알아차리지 못함. SYN 유실 {3}, 연결 실패 {4}, UDP 무응답 {5}."},
	{"{} noticed after {n} s that a host was silent, and went on to send to it: SYNs lost {n}, connections failed {n}, UDP queries unanswered {n}.", "{1}: {2}초 뒤 호스트의 응답이 끊긴 것을 알아차리고도 그리로 계속 보냄. SYN 유실 {3}, 연결 실패 {4}, UDP 무응답 {5}."},
	{"No connection that came again went to the drained backend through {}.", "다시 온 연결이 드레인된 백엔드로 가지 않음: {1}."},
	{"{} sent connections that came again to the drained backend: {n} ({}).", "{1}: 다시 온 연결 {2}개를 드레인된 백엔드로 보냄 ({3})."},
	{"connections from ports that are used again are ended by the client's reset, the server's reset and FIN in turn; a SYN counts as lost if the kernel had to send another, or none was answered within {}", "다시 쓰는 포트의 연결은 클라이언트의 리셋, 서버의 리셋, 서버의 FIN으로 차례로 끝남; 커널이 다시 보내야 했거나 {1} 안에 응답받지 못한 SYN은 유실로 셈"},
	{"a host that falls silent has its link taken down at the switch, and none of its connections when it is back, as after a crash", "응답이 끊기는 호스트는 스위치에서 링크를 내리며, 돌아올 때는 크래시 뒤처럼 연결이 없음"},
}
