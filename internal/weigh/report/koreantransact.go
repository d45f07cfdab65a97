// SPDX-License-Identifier: Apache-2.0

package report

// koreanTransactions are about transactions of a byte each way.
var koreanTransactions = []phrase{
	{"Connections, requests and throughput before three endpoints", "엔드포인트 셋 앞의 연결, 요청, 처리량"}, {"A connection for each transaction (TCP_CRR)", "트랜잭션마다 새 연결(TCP_CRR)"}, {"Transactions over kept connections (TCP_RR)", "유지 연결 위의 트랜잭션(TCP_RR)"},
	{"A transaction is a byte to a server and a byte back. With crr a connection is opened for it and closed by the server, as netperf's TCP_CRR does; with rr connections are kept, as in TCP_RR. The latency is that of all of it, closing included.", "트랜잭션은 서버로 한 바이트, 되돌아 한 바이트입니다. crr에서는 netperf의 TCP_CRR처럼 트랜잭션마다 연결을 열고 서버가 닫으며, rr에서는 TCP_RR처럼 연결을 유지합니다. 지연은 닫기까지 포함한 전체 시간입니다."},
	// The document's figures.
	{"Transactions by netperf and by jeoul's own generator", "netperf와 jeoul 자체 생성기의 트랜잭션"},
	{"Performance of LoxiLB on an AWS Graviton2 EC2 instance, loxilb.io (loxilb-on-graviton2.ko.txt); x86: LoxiLB's own page for the same bench", "AWS Graviton2 EC2 인스턴스에서 LoxiLB의 성능, loxilb.io (loxilb-on-graviton2.ko.txt); x86: 같은 시험에 대한 LoxiLB 자체의 문서"},
	{"m6g.metal, 64 cores of Arm Neoverse; client, balancer and 3 endpoints in namespaces of it. x86: not named here", "m6g.metal, Arm Neoverse 64코어; 클라이언트, 밸런서, 엔드포인트 3개가 그 네임스페이스에 있음. x86: 여기에 기종이 없음"},
	{"Measurement", "측정 항목"}, {"TCP_RR, 100 streams, requests/s", "TCP_RR, 스트림 100개, 요청/초"}, {"LoxiLB", "LoxiLB"}, {"Graviton2", "Graviton2"}, {"minimum and mean latency", "최소 및 평균 지연"}, {"about {n}", "약 {1}"}, {"just over 500", "500을 조금 넘음"}, {"under half of LoxiLB's", "LoxiLB의 절반 미만"},
	{"far ahead (in a picture)", "크게 앞섬(그림)"}, {"ahead (in a picture)", "앞섬(그림)"}, {"least (in a picture)", "최소(그림)"}, {"in a picture", "그림에 있음"},
	{"the document has most of its figures in pictures that its text does not repeat", "문서의 수치 대부분은 본문에 다시 적지 않은 그림에 있음"}, {"the load was closed-loop; HAProxy showed “Connection reset by peer” throughout", "부하는 폐루프였음; HAProxy는 내내 상대의 연결 리셋(ECONNRESET)을 보임"},
	// Notes.
	{"tcp_crr: a connection is opened for each transaction (a byte each way), and the server closes it first, as in netperf's TCP_CRR (recv_omni and disconnect_data_socket of nettest_omni.c); tcp_rr: connections are kept. Latency is from the call that connects or sends to the end; every one is counted (HdrHistogram)", "tcp_crr: netperf의 TCP_CRR처럼(nettest_omni.c의 recv_omni와 disconnect_data_socket) 트랜잭션(방향마다 한 바이트)마다 연결을 열고 서버가 먼저 닫음; tcp_rr: 연결을 유지함. 지연은 연결하거나 보내는 호출부터 끝까지이며 하나하나 셈(HdrHistogram)"},
	{"with one connection, client, servers and the balancer's processes are tied to the last core, where all their packet work is done as well: no step has to wake another core. With more, nothing is tied", "연결 하나일 때 클라이언트, 서버, 밸런서의 프로세스는 마지막 코어에 고정되고 패킷 작업도 모두 거기서 함: 어느 단계도 다른 코어를 깨우지 않음. 연결이 더 많으면 아무것도 고정하지 않음"},
	{"on machines nothing is tied to a core: with one connection, a step may have to wake another one, and that is in the figures", "기계에서는 아무것도 코어에 고정하지 않음: 연결 하나일 때 한 단계가 다른 코어를 깨워야 할 수 있고 그 시간도 수치에 들어감"},
	{"clients and servers of transactions are this program: one thread each for any number of connections, blocking calls for a single one", "트랜잭션의 클라이언트와 서버는 이 프로그램: 연결이 몇이든 저마다 스레드 하나, 연결 하나일 때는 블로킹 호출"},
	{"unknown, for one connection keeps one core busy with all parts in turn; {n} of {n} cores idled", "알 수 없음, 연결 하나는 모든 부분이 차례로 코어 하나를 씀; 코어 {2}개 중 {1}개 유휴"}, {"unknown, for there are no CPU figures", "알 수 없음, CPU 수치가 없음"},
	{"{n} transactions failed: {}", "트랜잭션 {1}건 실패: {2}"}, {"{} is not installed (Debian has it in non-free); leave out generator for this program's own", "{1}: 설치되지 않음(Debian의 non-free에 있음); generator를 빼면 이 프로그램 자체의 것을 씀"},
}

// koreanOpen are about requests that come at a fixed rate.
var koreanOpen = []phrase{
	{"Requests at a fixed rate, new connections (open loop)", "일정한 속도의 요청, 새 연결(개루프)"}, {"The highest rate that holds, new connections (open loop)", "지켜지는 최고 속도, 새 연결(개루프)"}, {"New connections with TLS (ab)", "TLS 새 연결(ab)"}, {"Kept connections with TLS (wrk)", "TLS 유지 연결(wrk)"},
	{"{n} requests due a second", "초당 예정 요청 {1}건"}, {"p99 of at most {n} ms", "p99 {1}ms 이하"}, {"Arrivals/s", "도착/초"}, {"p99 bound, ms", "p99 한도, ms"}, {"kept connections", "유지 연결"}, {"new connections", "새 연결"}, {"Kept", "유지"}, {"Generator", "생성기"}, {"over TLS", "TLS 사용"}, {"without TLS", "TLS 없음"}, {"TLS", "TLS"},
	{"{}: with {}, 99 % were answered within: {}.", "{1}: {2}일 때 99 %가 응답받은 시간: {3}."}, {"{} {n} ms", "{1} {2} ms"},
	{"Open loop", "개루프"}, {"Requests are due at a fixed rate, whether the last ones have been answered or not, and latency counts from when a request was due: one that had to wait because the server, the balancer or the generator stood still shows all of it. A closed loop would not have sent it (“coordinated omission”).", "요청은 앞의 것이 응답받았든 아니든 일정한 속도로 예정되며, 지연은 예정 시각부터 셉니다. 서버, 밸런서, 생성기가 멈춰 기다린 요청은 그 시간을 모두 보입니다. 폐루프라면 그 요청을 보내지도 않았을 것입니다(“coordinated omission”)."},
	{"The highest rate", "최고 속도"}, {"Where it was searched for, the requests/s are the highest rate at which 99 % of the requests kept the bound and none failed; a rate has to fail twice in a row to count as failed.", "탐색한 경우, 초당 요청은 99 %가 한도를 지키고 실패가 없던 최고 속도입니다. 잇달아 두 번 실패해야 실패한 속도로 봅니다."},
	{"over TLS, servers and proxies that end it show a certificate with an RSA key of {n} bits that signed itself; what is negotiated is up to the programs' own defaults. ab makes a whole handshake for each request, wrk one for each connection", "TLS에서는 TLS를 끝내는 서버와 프록시가 {1}비트 RSA 키의 자체 서명 인증서를 보임; 협상은 프로그램의 기본값에 따름. ab은 요청마다, wrk는 연결마다 전체 핸드셰이크를 함"},
	{"paced is an open loop: requests are due at a fixed rate, evenly spaced and shared by all clients, and a request's latency counts from when it was due, waiting for a free connection included (no coordinated omission). Every one is counted (HdrHistogram). A request that is not answered {n} s after it was due has failed", "paced는 개루프: 요청은 일정한 속도로 고르게 예정되어 모든 클라이언트가 나누며, 요청의 지연은 빈 연결을 기다린 시간까지 포함해 예정 시각부터 셈(coordinated omission 없음). 하나하나 셈(HdrHistogram). 예정 시각부터 {1}초 안에 응답받지 못한 요청은 실패"},
	{"a search doubles the rate until {n} % of the requests do not keep the bound or one fails, twice in a row, and then halves the distance; its figures are those of the highest rate that held", "탐색은 잇달아 두 번, 요청의 {1} %가 한도를 지키지 못하거나 하나라도 실패할 때까지 속도를 두 배로 올린 뒤 간격을 반으로 줄여 감; 수치는 지켜진 최고 속도의 것"},
	{"Offered/s", "제공/초"}, {"{n} requests were due while all connections were in use, and had to wait", "모든 연결이 쓰이는 동안 예정된 요청 {1}건이 기다림"}, {"given up after {n} s, for more than {n} % of the requests took longer than {}", "{1}초 뒤 포기, 요청의 {2} % 넘게 {3}보다 오래 걸림"}, {"{n} of {n} requests failed: {}", "요청 {2}건 중 {1}건 실패: {3}"},
	{"no answer within {} of when it was due", "예정 시각부터 {1} 안에 응답 없음"}, {"no answer within {}", "{1} 안에 응답 없음"}, {"the connection was closed before the answer", "응답 전에 연결이 닫힘"}, {"not asked for any more, for the bound could not be kept", "한도를 지킬 수 없어 더 요청하지 않음"},
	{"the lowest rate, {n} requests/s, did not hold a p99 of {n} ms: {}", "가장 낮은 속도(초당 요청 {1}건)에서 p99 {2}ms를 지키지 못함: {3}"}, {"the highest rate that was to be tried held: the ceiling is above it", "시도할 가장 높은 속도가 지켜짐: 한계는 그 위에 있음"},
	{"tried, requests/s: {}", "시도한 초당 요청: {1}"}, {"{n} held (p99 {n} ms)", "{1} 지킴(p99 {2} ms)"}, {"{n} did not (p99 {n} ms)", "{1} 못 지킴(p99 {2} ms)"}, {"{n} did not ({})", "{1} 못 지킴({2})"},
	{"{} reads HTTP, and is not set up to end TLS here", "{1}: HTTP를 읽으며 여기서는 TLS를 끝내도록 설정되지 않음"},
	{"HAProxy as in the document, but maxconn {n} (document: {n} in all, {n} a frontend) for the limit of open files; cpu-map to cores {} (document: {}); it ends its clients' TLS, and asks servers without, in the foreground; it logs to a port where {} listens; its health checks, one a server every {n} s, are among the backends' connections", "문서와 같은 HAProxy이나 열린 파일 한도 때문에 maxconn {1}(문서: 전체 {2}, 프런트엔드 {3}); cpu-map 코어 {4}(문서: {5}); 클라이언트의 TLS를 끝내고 서버에는 TLS 없이 물음, 포그라운드; 듣는 것이 없는 포트로 로그; 서버마다 {7}초에 한 번인 상태 검사가 백엔드 연결 수에 포함됨"},
}
